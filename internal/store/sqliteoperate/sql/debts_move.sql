-- debts: gives what a sink owes of a table to another one, the oldest ?4 of it, and returns of each row whether that
-- one has the event, in whatever state: there the debt has ended. ?1 table, ?2 sink, ?3 the other sink, ?5 now.
-- Index: outbox_deliveries_undelivered, outbox_deliveries_once.
WITH chosen AS MATERIALIZED (
    SELECT d.position, EXISTS (SELECT 1 FROM outbox_deliveries AS o
                                WHERE o.event_id = d.event_id AND o.queue = ?1 || '/' || ?3 AND o.generation = d.generation
                                  AND o.destinations = d.destinations) AS had
      FROM outbox_deliveries AS d
     WHERE d.queue = ?1 || '/' || ?2 AND d.status = 'pending'
     ORDER BY d.position
     LIMIT ?4
)
UPDATE outbox_deliveries
   SET sink = iif(c.had, sink, ?3),
       status = iif(c.had, 'delivered', 'pending'),
       attempts = iif(c.had, attempts, 0),
       delivered_at = iif(c.had, ?5, NULL),
       last_error = iif(c.had, 'moved to ' || ?3 || ', which had it already', last_error),
       next_retry_at = NULL
  FROM chosen AS c
 WHERE outbox_deliveries.position = c.position
RETURNING status = 'delivered'
