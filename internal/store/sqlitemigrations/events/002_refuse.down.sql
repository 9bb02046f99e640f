DROP TRIGGER IF EXISTS event_outbox_refuse;
