-- dlq: letters with everything, by their ids or their events'. Locks nothing. Index: job_dlq's primary key and
-- idx_job_dlq_original_job_id.
SELECT {{template "dlq_columns" .}}, l.error_history, l.payload
  FROM job_dlq l
 WHERE (l.id {{template "among" (arg .IDs)}} OR l.original_job_id {{template "among" (arg .IDs)}})
       {{- with .F.Tenant}} AND {{template "is_of_tenant" (arg .)}}{{end}}
 ORDER BY l.id DESC
