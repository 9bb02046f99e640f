-- run: the numbers of the last events of many runs. ?1 tenant, ?2 runs as a JSON array. Locks nothing. Asked several
-- times a second for every run that is watched, so it reads no row of a table: for each run one probe of crawl_runs_ids
-- and one of the unique index on (crawl_id, seq).
SELECT r.id, (SELECT max(e.seq) FROM crawl_events e WHERE e.crawl_id = r.id)
  FROM json_each(?2) AS asked
 CROSS JOIN crawl_runs r INDEXED BY crawl_runs_ids ON r.id = asked.value AND r.tenant_id = ?1
