-- bus: events that will never be delivered. ?1 app id, '' for all; ?2 a JSON array of row ids. Only pending ones change. Index: idx_event_outbox_pending.
UPDATE event_outbox
   SET status = 'failed', next_retry_at = NULL
 WHERE id IN (SELECT value FROM json_each(?2)) AND status = 'pending' AND (?1 = '' OR app_id = ?1)
