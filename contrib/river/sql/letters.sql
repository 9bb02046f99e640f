-- sweep, replay: how many attempts the newest letter of each of these jobs tells of, whatever became of that letter.
-- $1 job ids.
-- Locks nothing. Index: idx_job_dlq_original_job_id.
SELECT original_job_id, max(attempts)
  FROM job_dlq
 WHERE source = 'job' AND original_job_id = ANY ($1::uuid[])
 GROUP BY original_job_id
