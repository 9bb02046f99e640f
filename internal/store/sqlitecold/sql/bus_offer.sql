-- bus: an event, inside the producer's transaction.
-- Inserts nothing where the event id (or the row id) is there already.
INSERT INTO event_outbox (id, app_id, event_id, event_type, payload, event_key) VALUES ({{arg .ID}}, {{arg .AppID}}, {{arg .EventID}}, {{arg .EventType}}, {{arg .Body}}, nullif({{arg .Key}}, '')) ON CONFLICT DO NOTHING
