-- bus: an event, inside the producer's transaction. ?1 id, ?2 app id, ?3 event id, ?4 event type, ?5 payload, ?6 key
-- ('' for none).
-- Inserts nothing where the event id (or the row id) is there already.
INSERT INTO event_outbox (id, app_id, event_id, event_type, payload, event_key) VALUES (?1, ?2, ?3, ?4, ?5, nullif(?6, '')) ON CONFLICT DO NOTHING
