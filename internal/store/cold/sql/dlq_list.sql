-- dlq: a page of letters, newest first. Locks nothing. Index: job_dlq's primary key gives the order, with a tenant
-- idx_job_dlq_pending_app; or a partial one of few pending letters of a source, reason or type, and a sort. A filter
-- by error or fingerprint reads the letters that the rest leaves.
SELECT {{template "dlq_columns" .}}, NULL, NULL
  FROM job_dlq l
 WHERE {{template "dlq_where" .}}
       {{- with .F.After}} AND l.id < {{template "uuid_of_text" (arg .)}}{{end}}
 ORDER BY l.id DESC
 LIMIT {{arg .Limit}}
