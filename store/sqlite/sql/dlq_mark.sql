-- dlq: letters that were put back. ?1 a JSON array of ids, ?2 now. In the transaction of dlq_lock.sql. Index: job_dlq's
-- primary key.
UPDATE job_dlq SET replayed_at = ?2 WHERE id IN (SELECT value FROM json_each(?1))
