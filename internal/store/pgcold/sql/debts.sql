-- debts: what each sink owes of each table with routes, and how much of it is dead: has a letter that is neither
-- replayed nor discarded. Where this role does not see the letters, all dead rows
-- count.
-- Counts all rows that are owed or dead (1,000,000 in a second or so). Locks nothing.
-- Index: outbox_deliveries_lanes and outbox_deliveries_dead, for the letters idx_job_dlq_original_job_id.
SELECT sink, outbox_table, sum(owed)::int, sum(retrying)::int, min(oldest), now(), sum(dead)::int
  FROM (SELECT e.sink, e.outbox_table, count(*) AS owed, count(*) FILTER (WHERE e.next_retry_at > now()) AS retrying,
               min({{template "shown_time" "written_at"}}) AS oldest, 0 AS dead
          FROM outbox_deliveries e WHERE e.status = 'pending' GROUP BY e.sink, e.outbox_table
        UNION ALL
        SELECT e.sink, e.outbox_table, 0, 0, NULL, count(*)
          FROM outbox_deliveries e
         WHERE e.status = 'dead'
           AND (NOT {{arg .Visible}}::bool
                OR EXISTS (SELECT FROM job_dlq l
                            WHERE l.original_job_id = e.event_id AND l.position = e.position AND l.source = 'event'
                              AND l.outbox_table = 'outbox_deliveries' AND l.replayed_at IS NULL AND l.discarded_at IS NULL))
         GROUP BY e.sink, e.outbox_table) AS found
 GROUP BY sink, outbox_table
 ORDER BY sink, outbox_table
