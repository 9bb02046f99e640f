-- dlq: deletes a batch of letters that were {{.Since}} long enough ago; {{.Since}} is a column: replayed_at or
-- discarded_at. In a write transaction.
-- Index: job_dlq_replayed or job_dlq_discarded.
DELETE FROM job_dlq
 WHERE id IN (
        SELECT l.id FROM job_dlq l
         WHERE {{template "dlq_old" .}}
         ORDER BY l.{{.Since}}
         LIMIT {{arg .Limit}})

{{- define "dlq_old"}}l.{{.Since}} < {{arg .Cut}} AND {{template "dlq_where" .}}{{end}}
