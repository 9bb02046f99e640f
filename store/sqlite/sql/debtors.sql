-- debtors: as in PostgreSQL: which sinks owe something of which table, and whether a relay serves that. ?1 now.
-- Index: outbox_deliveries_undelivered.
SELECT d.outbox_table, d.sink,
       EXISTS (SELECT 1 FROM outbox_relays r WHERE r.table_name = 'outbox_deliveries/' || d.queue AND r.expires_at > ?1)
  FROM outbox_deliveries d WHERE d.status = 'pending' GROUP BY d.queue, d.outbox_table, d.sink
