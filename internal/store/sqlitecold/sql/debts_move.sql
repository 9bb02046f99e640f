-- debts: gives what a sink owes of a table to another one, the oldest of it, and returns of each row whether that
-- one has the event, in whatever state: there the debt has ended.
-- Index: outbox_deliveries_undelivered, outbox_deliveries_once.
WITH chosen AS MATERIALIZED (
    SELECT d.position, EXISTS (SELECT 1 FROM outbox_deliveries AS o
                                WHERE o.event_id = d.event_id AND o.queue = {{arg .Leased}} || '/' || {{arg .To}} AND o.generation = d.generation
                                  AND o.destinations = d.destinations) AS had
      FROM outbox_deliveries AS d
     WHERE d.queue = {{arg .Leased}} || '/' || {{arg .Sink}} AND d.status = 'pending'
     ORDER BY d.position
     LIMIT {{arg .Limit}}
)
UPDATE outbox_deliveries
   SET sink = iif(c.had, sink, {{arg .To}}),
       status = iif(c.had, 'delivered', 'pending'),
       attempts = iif(c.had, attempts, 0),
       delivered_at = iif(c.had, {{arg .Now}}, NULL),
       last_error = iif(c.had, 'moved to ' || {{arg .To}} || ', which had it already', last_error),
       next_retry_at = NULL
  FROM chosen AS c
 WHERE outbox_deliveries.position = c.position
RETURNING status = 'delivered'
