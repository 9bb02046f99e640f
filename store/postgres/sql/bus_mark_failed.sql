-- bus: events that will never be delivered, and a dead letter of each, as settle_dead.sql has them. $1 row ids, $2
-- reason, $3 error, $4 destination ('' for all).
-- Only pending ones change. Locks the rows. Index: idx_event_outbox_pending or the primary key.
WITH failed AS (
    UPDATE event_outbox
       SET status = 'failed', next_retry_at = NULL, retry_count = retry_count + 1, error_message = $3::text,
           error_history = coalesce(error_history, '[]') || jsonb_build_object('error', $3::text, 'timestamp', now())
     WHERE id = ANY ($1::uuid[]) AND status = 'pending'
    RETURNING event_id, app_id, event_type, payload, retry_count, error_history, event_key, generation, position
), letter AS (
    INSERT INTO job_dlq (source, original_job_id, app_id, type, payload, error_reason, attempts, error_history,
                         destination, outbox_table, event_key, generation, position)
    SELECT 'event', f.event_id, f.app_id, f.event_type, f.payload, $2::text, f.retry_count, f.error_history,
           nullif($4::text, ''), 'event_outbox', f.event_key, f.generation, f.position
      FROM failed f
)
SELECT count(*) FROM failed
