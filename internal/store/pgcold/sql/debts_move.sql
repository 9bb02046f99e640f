-- debts: gives what a sink owes of a table to another one, the oldest of it, and returns of each row whether that one
-- has the event, in whatever state: there the debt has ended.
-- Locks the rows, in the order of a settle. Index: outbox_deliveries_undelivered, outbox_deliveries_once.
WITH chosen AS MATERIALIZED (
    SELECT d.position, EXISTS (SELECT FROM outbox_deliveries o
                                WHERE o.event_id = d.event_id AND o.queue = {{arg .Leased}}::text || '/' || {{arg .To}}::text AND o.generation = d.generation
                                  AND o.destinations->>0 = d.destinations->>0) AS had
      FROM outbox_deliveries d
     WHERE d.queue = {{arg .Leased}}::text || '/' || {{arg .Sink}}::text AND d.status = 'pending'
     ORDER BY d.position
     LIMIT {{arg .Limit}}
       FOR UPDATE
)
UPDATE outbox_deliveries d
   SET sink = CASE WHEN c.had THEN d.sink ELSE {{arg .To}}::text END,
       status = CASE WHEN c.had THEN 'delivered' ELSE 'pending' END,
       attempts = CASE WHEN c.had THEN d.attempts ELSE 0 END,
       delivered_at = CASE WHEN c.had THEN now() END,
       last_error = CASE WHEN c.had THEN 'moved to ' || {{arg .To}}::text || ', which had it already' ELSE d.last_error END,
       next_retry_at = NULL
  FROM chosen c
 WHERE c.position = d.position
RETURNING c.had
