-- letters: how many are pending, by source and table. Locks nothing. Index: idx_job_dlq_pending_source.
SELECT source, coalesce(outbox_table, ''), count(*)
  FROM (SELECT l.source, l.outbox_table FROM job_dlq l WHERE l.replayed_at IS NULL AND l.discarded_at IS NULL LIMIT {{arg .Limit}}) AS pending
 GROUP BY 1, 2
