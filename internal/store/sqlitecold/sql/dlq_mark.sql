-- dlq: letters that were put back. In the transaction of dlq_lock.sql. Index: job_dlq's
-- primary key.
UPDATE job_dlq SET replayed_at = {{arg .Now}} WHERE id IN (SELECT value FROM json_each({{arg .IDs}}))
