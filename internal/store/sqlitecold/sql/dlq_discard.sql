-- dlq: marks a page of pending letters as discarded, in a write transaction. The order has it go through the pending
-- letters and no others. Index: as dlq_lock.sql.
UPDATE job_dlq
   SET discarded_at = {{arg .Now}}, discard_reason = {{arg .Reason}}
 WHERE id IN (
        SELECT l.id FROM job_dlq l
         WHERE {{template "dlq_where" .}}
         ORDER BY coalesce(l.outbox_table, ''), coalesce(l.position, 0), l.original_job_id
         LIMIT {{arg .Limit}})
