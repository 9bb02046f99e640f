-- run: the numbers of the last events of many runs. Locks nothing. Asked several times a second for every run that is
-- watched, so it reads no row of a table: for each run one probe of crawl_runs_ids and two of the unique index on
-- (crawl_id, seq).
SELECT r.id, (SELECT max(e.seq) FROM crawl_events e WHERE e.crawl_id = r.id)
  FROM json_each({{arg .Runs}}) AS asked
 CROSS JOIN crawl_runs r INDEXED BY crawl_runs_ids ON r.id = asked.value AND r.tenant_id = {{arg .Tenant}}
 WHERE EXISTS (SELECT 1 FROM crawl_events e WHERE e.crawl_id = r.id)
