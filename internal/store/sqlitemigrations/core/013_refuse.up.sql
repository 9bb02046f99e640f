-- Additive, in no seed: as core/020_refuse of PostgreSQL. SQLite adds no CHECK to a table that is there.
CREATE TRIGGER outbox_events_refuse BEFORE INSERT ON outbox_events
WHEN NEW.event_topic = '' OR NEW.tenant_id = '' OR NEW.destination_topics IS NOT NULL OR NEW.metadata IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'event_topic is empty') WHERE NEW.event_topic = '';
    SELECT RAISE(ABORT, 'tenant_id is empty: leave it out for the tenant default') WHERE NEW.tenant_id = '';
    SELECT RAISE(ABORT, 'destination_topics is no array of texts, such as ["orders", "audit"]')
     WHERE CASE WHEN NOT json_valid(NEW.destination_topics) THEN false
                WHEN json_type(NEW.destination_topics) = 'array'
                THEN EXISTS (SELECT 1 FROM json_each(NEW.destination_topics) WHERE type <> 'text' OR value = '')
                ELSE json_type(NEW.destination_topics) <> 'null' END;
    SELECT RAISE(ABORT, 'metadata is no JSON object')
     WHERE CASE WHEN json_valid(NEW.metadata) THEN json_type(NEW.metadata) NOT IN ('object', 'null') END;
END;
