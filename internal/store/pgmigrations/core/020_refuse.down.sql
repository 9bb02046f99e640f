DROP TRIGGER IF EXISTS outbox_events_refuse ON outbox_events;
DROP FUNCTION IF EXISTS outbox_events_refuse();
