-- run: the first event of a run's log whose id is given with another type or payload. $1 tenant, $2 run, $3 ids, $4
-- types, $5 payloads. Payloads are equal as jsonb has it: neither the order of keys nor 1.0 for 1 is a difference.
-- Index: that of (crawl_id, event_id).
SELECT e.event_id
  FROM unnest($3::uuid[], $4::text[], $5::text[]) AS given (id, type, payload)
 CROSS JOIN LATERAL (
        SELECT l.event_id, l.event_type, l.payload FROM crawl_events l WHERE l.crawl_id = $2 AND l.tenant_id = $1 AND l.event_id = given.id LIMIT 1) e
 WHERE e.event_type <> given.type OR e.payload <> given.payload::jsonb
 LIMIT 1
