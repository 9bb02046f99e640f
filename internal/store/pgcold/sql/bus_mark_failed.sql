-- bus: events that will never be delivered, after bus_letter.sql. Only pending ones change. Locks the rows. Index:
-- idx_event_outbox_pending or the primary key.
UPDATE event_outbox
   SET status = 'failed', next_retry_at = NULL, retry_count = retry_count + 1, error_message = {{arg .Failure.Error}}::text,
       error_history = coalesce(error_history, '[]') || jsonb_build_object('error', {{arg .Failure.Error}}::text, 'timestamp', now())
 WHERE id = ANY ({{arg .IDs}}::uuid[]) AND status = 'pending'
