-- dlq: how many letters a replay would take, by table, and how many of them are older than a time. Locks nothing.
-- Index: a partial one of pending letters, as the filter allows.
SELECT l.source, coalesce(l.outbox_table, ''), count(*), count(*) FILTER (WHERE l.id < {{template "uuid" (arg .CutID)}})
  FROM job_dlq l
 WHERE {{template "dlq_where" .}}
 GROUP BY 1, 2
 ORDER BY 1, 2
