-- dlq: letters that were put back. Locks them, which dlq_lock.sql has done. Index: job_dlq's primary key.
-- Not now(), which is when the transaction began: it may have waited for another's letters since, and would seem to
-- have gone first.
UPDATE job_dlq SET replayed_at = statement_timestamp() WHERE id = ANY ({{arg .IDs}}::uuid[])
