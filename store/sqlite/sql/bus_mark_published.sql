-- bus: events that were delivered. ?1 app id, '' for all; ?2 a JSON array of row ids, ?3 now. Only pending ones change:
-- neither end state is left again. Index: idx_event_outbox_pending.
UPDATE event_outbox
   SET status = 'published', published_at = ?3, next_retry_at = NULL
 WHERE id IN (SELECT value FROM json_each(?2)) AND status = 'pending' AND (?1 = '' OR app_id = ?1)
