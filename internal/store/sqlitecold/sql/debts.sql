-- debts: what each sink owes of each table with routes, and how much of it is dead: has a letter that is neither
-- replayed nor discarded. Counts all rows that are owed or dead (1,000,000 in a second or so). Locks nothing.
-- Index: outbox_deliveries_lanes and outbox_deliveries_dead, for the letters idx_job_dlq_original_job_id.
SELECT sink, outbox_table, sum(owed), sum(retrying), min(oldest), {{arg .Now}}, sum(dead)
  FROM (SELECT sink, outbox_table, count(*) AS owed, count(*) FILTER (WHERE next_retry_at > {{arg .Now}}) AS retrying,
               min(written_at) AS oldest, 0 AS dead
          FROM outbox_deliveries WHERE status = 'pending' GROUP BY sink, outbox_table
        UNION ALL
        SELECT e.sink, e.outbox_table, 0, 0, NULL, count(*)
          FROM outbox_deliveries AS e
         WHERE e.status = 'dead'
           AND EXISTS (SELECT 1 FROM job_dlq l
                        WHERE l.original_job_id = lower(e.event_id) AND l.position = e.position AND l.source = 'event'
                          AND l.outbox_table = 'outbox_deliveries' AND l.replayed_at IS NULL AND l.discarded_at IS NULL)
         GROUP BY e.sink, e.outbox_table) AS found
 GROUP BY sink, outbox_table
 ORDER BY sink, outbox_table
