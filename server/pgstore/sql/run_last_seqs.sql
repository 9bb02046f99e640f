-- run: the numbers of the last events of many runs. Locks nothing. Index: one probe a run of the
-- unique one on (crawl_id, seq).
-- The tenant is compared outside: inside, a run of another one would be searched from its end to its beginning.
SELECT e.crawl_id, e.seq
  FROM unnest({{arg .Runs}}::uuid[]) AS run (id)
 CROSS JOIN LATERAL (
        SELECT l.crawl_id, l.seq, l.tenant_id FROM crawl_events l WHERE l.crawl_id = run.id ORDER BY l.seq DESC LIMIT 1) e
 WHERE e.tenant_id = {{arg .Tenant}}
