DROP TRIGGER IF EXISTS event_outbox_refuse ON event_outbox;
DROP FUNCTION IF EXISTS event_outbox_refuse();
