-- bus: an event, inside the producer's transaction. $1 id, $2 app id, $3 event id, $4 event type, $5 payload, $6 key
-- ('' for none).
-- Inserts nothing where the event id (or the row id) is there already: a unique violation would abort the transaction.
-- An id that an open transaction is inserting is waited for. Without RETURNING and without a conflict target it needs
-- no right but INSERT. Nor does it insert anything through a connection in another encoding than UTF-8, which
-- database/sql cannot tell before.
INSERT INTO event_outbox (id, app_id, event_id, event_type, payload, event_key)
SELECT $1::uuid, $2::uuid, $3::uuid, $4::text, $5::text::jsonb, nullif($6::text, '')
 WHERE {{template "encoding"}}
ON CONFLICT DO NOTHING
