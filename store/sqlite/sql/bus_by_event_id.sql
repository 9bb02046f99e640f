-- bus: one event, whatever its status. ?1 app id, '' for all; ?2 event id. Index: that of event_id.
SELECT id, app_id, event_id, event_type, payload, coalesce(event_key, ''), status, published_at
  FROM event_outbox
 WHERE event_id = ?2 AND (?1 = '' OR app_id = ?1)
