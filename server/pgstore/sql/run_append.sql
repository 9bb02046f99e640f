-- run: appends events to log and outbox, in their order. $1 run, $2 ids, $3 types, $4 payloads. The run is locked
-- (run_lock.sql, run_claim.sql); the trigger of crawl_events numbers the rows as they come and gives them the run's
-- tenant. The outbox has number, id, tenant and time from the log. It draws its positions in the order of the numbers
-- and under the same lock, so the relay publishes a run's events in their order.
-- RETURNING nothing: the caller knows the numbers, and needs no right to read the outbox.
WITH logged AS (
    INSERT INTO crawl_events (crawl_id, event_type, payload, event_id)
    SELECT $1, e.type, e.payload::jsonb, e.id
      FROM unnest($2::uuid[], $3::text[], $4::text[]) WITH ORDINALITY AS e (id, type, payload, n)
     ORDER BY e.n
    RETURNING crawl_id, event_type, payload, created_at, event_id, seq, tenant_id
)
INSERT INTO crawl_outbox (crawl_id, event_type, payload, created_at, event_id, seq, tenant_id)
SELECT crawl_id, event_type, payload, created_at, event_id, seq, tenant_id
  FROM logged
 ORDER BY seq
