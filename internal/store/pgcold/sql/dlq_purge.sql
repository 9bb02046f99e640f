-- dlq: deletes a batch of letters that were {{.Since}} long enough ago; {{.Since}} is a column: replayed_at or
-- discarded_at. Locks them, and leaves those that somebody else has locked. Index: job_dlq_replayed or
-- job_dlq_discarded.
DELETE FROM job_dlq
 WHERE id = ANY (ARRAY(
        SELECT l.id FROM job_dlq l
         WHERE {{template "dlq_old" .}}
         ORDER BY l.{{.Since}}
         LIMIT {{arg .Limit}}
           FOR UPDATE SKIP LOCKED))

{{- define "dlq_old"}}l.{{.Since}} < now() - {{arg .Age}}::bigint * interval '1 microsecond' AND {{template "dlq_where" .}}{{end}}
