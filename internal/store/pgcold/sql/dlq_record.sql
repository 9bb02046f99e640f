-- dlq: the letter of a failed job, or of an event that a consumer gave up, or the one it has. Locks the inserted row.
-- The application exists: dlq_app.sql ran before. Index: idx_job_dlq_original_job_id.
WITH known AS (
    {{template "dlq_known" .}}
), recorded AS (
    INSERT INTO job_dlq (source, original_job_id, app_id, user_id, request_id, type, payload, error_reason, attempts, error_history, tenant)
    SELECT {{arg .From}}::text, {{arg .ID}}::uuid, (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{arg .Tenant}}::text)),
           {{arg .User}}::uuid, {{arg .Request}}::uuid, {{arg .Text}}::text, {{arg .Body}}::jsonb, {{arg .Reason}}::text, {{arg .Attempts}}::int, {{arg .History}}::jsonb, {{arg .Tenant}}::text
     WHERE NOT EXISTS (SELECT FROM known)
    RETURNING id
)
SELECT id FROM recorded UNION ALL SELECT id FROM known
