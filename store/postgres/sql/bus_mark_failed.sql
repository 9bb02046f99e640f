-- bus: events that will never be delivered. $1 row ids. Only pending ones change. Locks the rows.
-- Index: idx_event_outbox_pending or the primary key.
UPDATE event_outbox
   SET status = 'failed', next_retry_at = NULL
 WHERE id = ANY ($1::uuid[]) AND status = 'pending'
