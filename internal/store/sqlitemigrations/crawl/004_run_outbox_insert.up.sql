-- Source: FR-005 (docs/seeds.md): the crawl worker writes its events to run_outbox. PostgreSQL's view takes an INSERT by itself.

CREATE TRIGGER run_outbox_insert INSTEAD OF INSERT ON run_outbox
BEGIN
    INSERT INTO crawl_outbox (id, crawl_id, event_type, payload, created_at, published_at)
    VALUES (NEW.id, NEW.run_id, NEW.event_type, NEW.payload,
            coalesce(NEW.created_at, strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')), NEW.published_at);
END;
