-- dlq: the letter of a failed job, or of an event that a consumer gave up, unless it has one: then no row. The
-- application exists: dlq_app.sql ran before. Index: idx_job_dlq_original_job_id.
INSERT INTO job_dlq (id, source, original_job_id, app_id, user_id, request_id, type, payload, error_reason, attempts, error_history, tenant)
SELECT {{arg .Letter}}, {{arg .From}}, {{arg .ID}}, (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{arg .Tenant}})),
       {{arg .User}}, {{arg .Request}}, {{arg .Text}}, {{arg .Body}}, {{arg .Reason}}, {{arg .Attempts}}, {{arg .History}}, {{arg .Tenant}}
 WHERE NOT EXISTS ({{template "dlq_known" .}})
RETURNING id
