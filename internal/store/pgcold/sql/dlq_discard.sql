-- dlq: marks a page of pending letters as discarded. Locks them, in the order of dlq_lock.sql, so that it and a replay
-- cannot wait for each other in a circle. Index: as there.
UPDATE job_dlq
   SET discarded_at = now(), discard_reason = {{arg .Reason}}
 WHERE id = ANY (ARRAY(
        SELECT l.id FROM job_dlq l
         WHERE {{template "dlq_where" .}}
         ORDER BY coalesce(l.outbox_table, ''), coalesce(l.position, 0), l.original_job_id
         LIMIT {{arg .Limit}}
           FOR UPDATE))
