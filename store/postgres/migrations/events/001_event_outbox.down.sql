DROP FUNCTION IF EXISTS purge_event_outbox(INT);
DROP TABLE IF EXISTS event_outbox;
