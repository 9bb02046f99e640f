-- dlq: the letter of a failed job, or of an event that a consumer gave up, or the one it has. $10 source, $1 job or
-- event id, $2 namespace, $3 user, $4 request, $5 type, $6 payload, $7 reason, $8 attempts, $9 error history.
-- Locks the inserted row. The application exists: settle_apps.sql ran before. Index: idx_job_dlq_original_job_id.
WITH known AS (
    SELECT l.id FROM job_dlq l WHERE l.original_job_id = $1 AND l.source = $10::text AND l.outbox_table IS NULL AND l.attempts = $8::int AND l.replayed_at IS NULL LIMIT 1
), recorded AS (
    INSERT INTO job_dlq (source, original_job_id, app_id, user_id, request_id, type, payload, error_reason, attempts, error_history)
    SELECT $10::text, $1, (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower($2::text)), $3, $4, $5, $6::jsonb, $7, $8::int, $9::jsonb
     WHERE NOT EXISTS (SELECT FROM known)
    RETURNING id
)
SELECT id FROM recorded UNION ALL SELECT id FROM known
