-- dlq: the letters that a replay would take, in its order, and what each is of. Locks nothing. Index: job_dlq_replay.
SELECT l.id, l.original_job_id
  FROM job_dlq l
 WHERE {{template "dlq_where" .}}
 ORDER BY coalesce(l.outbox_table, ''), coalesce(l.position, 0), l.original_job_id
 LIMIT {{arg .Limit}}
