-- Source: FR-005 and FR-006 (docs/seeds.md). As crawl/005_one_event of PostgreSQL: a row of plain SQL takes the number and the id of its event in the log.
-- SQLite does not say which transaction wrote a row, so the event is one of the last five seconds.
DROP TRIGGER crawl_outbox_tenant;
CREATE TRIGGER crawl_outbox_tenant AFTER INSERT ON crawl_outbox WHEN NEW.seq IS NULL OR NEW.tenant_id = ''
BEGIN
    UPDATE crawl_outbox SET tenant_id = coalesce((SELECT r.tenant_id FROM crawl_runs r WHERE r.id = NEW.crawl_id), '') WHERE id = NEW.id;
    UPDATE crawl_outbox SET seq = logged.seq, event_id = logged.event_id
      FROM (SELECT e.seq, e.event_id FROM crawl_events e
             WHERE e.crawl_id = NEW.crawl_id AND e.event_type = NEW.event_type AND e.payload = NEW.payload
               AND e.seq > (SELECT max(l.seq) FROM crawl_events l WHERE l.crawl_id = NEW.crawl_id) - 1000
               AND e.created_at > strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-5 seconds')
               AND NOT EXISTS (SELECT 1 FROM crawl_outbox o WHERE o.crawl_id = NEW.crawl_id AND o.event_id = e.event_id)
             ORDER BY e.seq LIMIT 1) logged
     WHERE crawl_outbox.id = NEW.id AND NEW.seq IS NULL;
END;
