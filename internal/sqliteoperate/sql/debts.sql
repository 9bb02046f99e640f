-- debts: what each sink owes of each table with routes, and how much of it is dead. Counts all rows that are one or the
-- other (1,000,000 in a second or so). Locks nothing. ?1 now. Index: outbox_deliveries_lanes and
-- outbox_deliveries_dead.
SELECT sink, outbox_table, sum(owed), sum(retrying), min(oldest), sum(dead)
  FROM (SELECT sink, outbox_table, count(*) AS owed, count(*) FILTER (WHERE next_retry_at > ?1) AS retrying,
               min(written_at) AS oldest, 0 AS dead
          FROM outbox_deliveries WHERE status = 'pending' GROUP BY sink, outbox_table
        UNION ALL
        SELECT sink, outbox_table, 0, 0, NULL, count(*)
          FROM outbox_deliveries WHERE status = 'dead' GROUP BY sink, outbox_table) AS found
 GROUP BY sink, outbox_table
 ORDER BY sink, outbox_table
