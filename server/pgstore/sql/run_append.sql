-- run: appends events to the log, in their order. The run is locked (run_lock.sql, run_claim.sql); the trigger of
-- crawl_events numbers the rows as they come and gives them the run's tenant.
INSERT INTO crawl_events (crawl_id, event_type, payload, event_id)
SELECT {{arg .Run}}::uuid, e.type, e.payload::jsonb, e.id
  FROM unnest({{arg .IDs}}::uuid[], {{arg .Types}}::text[], {{arg .Payloads}}::text[]) WITH ORDINALITY AS e (id, type, payload, n)
 ORDER BY e.n
