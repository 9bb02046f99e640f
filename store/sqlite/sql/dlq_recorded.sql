-- dlq: the letter that a job has already. ?1 job or event id, ?2 attempts, ?3 source. Index:
-- idx_job_dlq_original_job_id.
SELECT l.id FROM job_dlq l WHERE l.original_job_id = ?1 AND l.source = ?3 AND l.outbox_table IS NULL AND l.attempts = ?2 AND l.replayed_at IS NULL LIMIT 1
