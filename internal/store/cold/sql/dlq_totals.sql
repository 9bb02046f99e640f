-- dlq: how many letters are in which state. Locks nothing, reads every letter that the filter leaves.
SELECT count(*) FILTER (WHERE l.replayed_at IS NULL AND l.discarded_at IS NULL), count(l.replayed_at),
       count(*) FILTER (WHERE l.replayed_at IS NULL AND l.discarded_at IS NOT NULL)
  FROM job_dlq l
 WHERE {{template "dlq_where" .}}
