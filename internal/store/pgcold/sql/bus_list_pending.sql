-- bus: a page of pending events for a look at them, in the order of their row ids. Locks nothing. Index:
-- idx_event_outbox_pending.
SELECT id, app_id, event_id, event_type, payload::text, coalesce(event_key, ''), status, published_at::timestamptz
  FROM event_outbox
 WHERE status = 'pending' AND id > {{arg .After}}
 ORDER BY id
 LIMIT {{arg .Limit}}
