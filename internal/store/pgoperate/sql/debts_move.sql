-- debts: gives what a sink owes of a table to another one, the oldest $4 of it. What that one has of an event, in
-- whatever state, it is not given again: there the debt has ended. $1 table, $2 sink, $3 the other sink.
-- Locks the rows, in the order of a settle. Index: outbox_deliveries_undelivered, outbox_deliveries_once.
WITH chosen AS MATERIALIZED (
    SELECT d.position, EXISTS (SELECT FROM outbox_deliveries o
                                WHERE o.event_id = d.event_id AND o.queue = $1 || '/' || $3 AND o.generation = d.generation
                                  AND o.destinations->>0 = d.destinations->>0) AS had
      FROM outbox_deliveries d
     WHERE d.queue = $1 || '/' || $2 AND d.status = 'pending'
     ORDER BY d.position
     LIMIT $4
       FOR UPDATE
), moved AS (
    UPDATE outbox_deliveries d SET sink = $3, attempts = 0, next_retry_at = NULL
      FROM chosen c WHERE c.position = d.position AND NOT c.had
    RETURNING d.position
), ended AS (
    UPDATE outbox_deliveries d SET status = 'delivered', delivered_at = now(), next_retry_at = NULL,
           last_error = 'moved to ' || $3 || ', which had it already'
      FROM chosen c WHERE c.position = d.position AND c.had
    RETURNING d.position
)
SELECT (SELECT count(*) FROM moved)::int, (SELECT count(*) FROM ended)::int
