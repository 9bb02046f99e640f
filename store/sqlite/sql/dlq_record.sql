-- dlq: the letter of a failed job, or of an event that a consumer gave up, unless it has one: then no row. ?11 source,
-- ?1 the letter's id, ?2 job or event id, ?3 namespace, ?4 user, ?5 request, ?6 type, ?7 payload, ?8 reason, ?9
-- attempts, ?10 error history. The application exists: settle_apps.sql ran before. Index: idx_job_dlq_original_job_id.
INSERT INTO job_dlq (id, source, original_job_id, app_id, user_id, request_id, type, payload, error_reason, attempts, error_history)
SELECT ?1, ?11, ?2, (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower(?3)), ?4, ?5, ?6, ?7, ?8, ?9, ?10
 WHERE NOT EXISTS (SELECT 1 FROM job_dlq l WHERE l.original_job_id = ?2 AND l.source = ?11 AND l.outbox_table IS NULL AND l.attempts = ?9 AND l.replayed_at IS NULL)
RETURNING id
