-- bus: events that will never be delivered, after bus_letter.sql. ?1 app id, '' for all; ?2 a JSON array of row ids, ?3
-- now, ?4 error. Only pending ones change. Index: idx_event_outbox_pending.
UPDATE event_outbox
   SET status = 'failed', next_retry_at = NULL, retry_count = retry_count + 1, error_message = ?4,
       error_history = json_insert(coalesce(error_history, '[]'), '$[#]', json_object('error', ?4, 'timestamp', ?3))
 WHERE id IN (SELECT value FROM json_each(?2)) AND status = 'pending' AND (?1 = '' OR app_id = ?1)
