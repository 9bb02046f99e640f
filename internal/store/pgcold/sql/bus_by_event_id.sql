-- bus: one event, whatever its status. Index: event_outbox_event_id_key.
SELECT id, app_id, event_id, event_type, payload::text, coalesce(event_key, ''), status, published_at::timestamptz
  FROM event_outbox
 WHERE event_id = {{arg .EventID}}
