-- bus: a page of pending events for a look at them, in the order of their row ids. $1 the last id of the page before,
-- $2 limit.
-- Locks nothing. Index: idx_event_outbox_pending.
SELECT id, app_id, event_id, event_type, payload::text, coalesce(event_key, ''), status, published_at::timestamptz
  FROM event_outbox
 WHERE status = 'pending' AND id > $1
 ORDER BY id
 LIMIT $2
