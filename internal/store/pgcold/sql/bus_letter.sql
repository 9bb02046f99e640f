-- bus: the dead letters of events that bus_mark_failed.sql is to mark next, as settle_dead.sql has them. Only pending
-- ones have one; their rows are locked, so that they stay so. Index: idx_event_outbox_pending or the primary key.
INSERT INTO job_dlq (source, original_job_id, app_id, type, payload, error_reason, attempts, error_history,
                     destination, outbox_table, event_key, generation, position)
SELECT 'event', e.event_id, e.app_id, e.event_type, e.payload, {{arg .Failure.Reason}}::text, e.retry_count + 1,
       coalesce(e.error_history, '[]') || jsonb_build_object('error', {{arg .Failure.Error}}::text, 'timestamp', now()),
       nullif({{arg .Failure.Destination}}::text, ''), 'event_outbox', e.event_key, e.generation, e.position
  FROM event_outbox e
 WHERE e.id = ANY ({{arg .IDs}}::uuid[]) AND e.status = 'pending'
 ORDER BY e.id
   FOR UPDATE
