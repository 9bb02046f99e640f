-- bus: an event, inside the producer's transaction.
-- Inserts nothing where the event id (or the row id) is there already: a unique violation would abort the transaction.
-- An id that an open transaction is inserting is waited for. Without RETURNING and without a conflict target it needs
-- no right but INSERT. Nor does it insert anything through a connection in another encoding than UTF-8, which
-- database/sql cannot tell before.
INSERT INTO event_outbox (id, app_id, event_id, event_type, payload, event_key)
SELECT {{arg .ID}}::uuid, {{arg .AppID}}::uuid, {{arg .EventID}}::uuid, {{arg .EventType}}::text, {{arg .Body}}::text::jsonb, nullif({{arg .Key}}::text, '')
 WHERE {{template "encoding"}}
ON CONFLICT DO NOTHING
