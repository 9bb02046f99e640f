-- run: a page of a run's log. $1 tenant, $2 run, $3 number after which it begins, $4 limit. Locks nothing. Index: the unique one on (crawl_id, seq), in order.
-- The payload is text, as the relay reads it: jsonb is spelled out once, by the server.
SELECT e.seq, e.event_id, e.event_type, e.created_at, e.payload::text
  FROM crawl_events e
 WHERE e.crawl_id = $2 AND e.tenant_id = $1 AND e.seq > $3
 ORDER BY e.seq
 LIMIT $4
