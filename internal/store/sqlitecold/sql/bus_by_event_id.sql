-- bus: one event, whatever its status. Index: that of event_id.
SELECT id, app_id, event_id, event_type, payload, coalesce(event_key, ''), status, published_at
  FROM event_outbox
 WHERE event_id = {{arg .EventID}}{{with .App}} AND app_id = {{arg .}}{{end}}
