-- run: which of these ids are in a run's log, and where. $1 tenant, $2 run, $3 ids. Index: that of (crawl_id,
-- event_id).
SELECT e.event_id, e.seq
  FROM crawl_events e
 WHERE e.crawl_id = $2 AND e.tenant_id = $1 AND e.event_id = ANY ($3::uuid[])
