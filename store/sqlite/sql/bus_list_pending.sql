-- bus: a page of pending events for a look at them, in the order of their row ids. ?1 app id, '' for all; ?2 the last
-- id of the page before, ?3 limit.
-- Locks nothing. Index: idx_event_outbox_pending.
SELECT id, app_id, event_id, event_type, payload, coalesce(event_key, ''), status, published_at
  FROM event_outbox
 WHERE status = 'pending' AND id > ?2 AND (?1 = '' OR app_id = ?1)
 ORDER BY id
 LIMIT ?3
