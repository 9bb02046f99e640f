-- debtors: which sinks owe something of which table, and whether a relay serves that: it has a lease of its own. Locks
-- nothing. Index: outbox_deliveries_undelivered, once for each of them.
WITH RECURSIVE debtor AS (
    (SELECT d.queue, d.outbox_table, d.sink FROM outbox_deliveries d WHERE d.status = 'pending' ORDER BY d.queue LIMIT 1)
    UNION ALL
    SELECT next.* FROM debtor, LATERAL (SELECT d.queue, d.outbox_table, d.sink FROM outbox_deliveries d
                                         WHERE d.status = 'pending' AND d.queue > debtor.queue ORDER BY d.queue LIMIT 1) next
)
SELECT outbox_table, sink,
       EXISTS (SELECT FROM outbox_relays r WHERE r.table_name = 'outbox_deliveries/' || queue AND r.expires_at > clock_timestamp())
  FROM debtor
