-- run: which of many runs have a final status, and the number of the last event of each, or 0. Locks nothing. Asked
-- every second for the runs that are watched. Index: crawl_runs_ids, and the unique one on (crawl_id, seq).
SELECT r.id, coalesce((SELECT max(e.seq) FROM crawl_events e WHERE e.crawl_id = r.id), 0)
  FROM json_each({{arg .Runs}}) AS asked
 CROSS JOIN crawl_runs r INDEXED BY crawl_runs_ids ON r.id = asked.value AND r.tenant_id = {{arg .Tenant}}
 WHERE r.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
