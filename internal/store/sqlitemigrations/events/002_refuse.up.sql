-- Additive, in no seed: as events/003_refuse of PostgreSQL.
CREATE TRIGGER event_outbox_refuse BEFORE INSERT ON event_outbox WHEN NEW.event_type = ''
BEGIN
    SELECT RAISE(ABORT, 'event_type is empty');
END;
