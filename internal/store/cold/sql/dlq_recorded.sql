-- dlq: the letter that a job has already. Locks nothing. Index: idx_job_dlq_original_job_id.
{{template "dlq_known" .}}

{{- define "dlq_known" -}}
    SELECT l.id FROM job_dlq l
     WHERE l.original_job_id = {{template "uuid" (arg .ID)}} AND l.source = {{template "text" (arg .From)}} AND l.outbox_table IS NULL
       AND l.attempts = {{template "number" (arg .Attempts)}} AND l.replayed_at IS NULL
     LIMIT 1
{{- end}}
