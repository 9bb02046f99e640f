-- run: which of many runs have a final status, and the number of the last event of each, or 0. One statement, so that
-- both are of one moment. Locks nothing. Index: the primary key, and one probe a run of the unique one on
-- (crawl_id, seq).
SELECT r.id, coalesce((SELECT l.seq FROM crawl_events l WHERE l.crawl_id = r.id ORDER BY l.seq DESC LIMIT 1), 0)
  FROM crawl_runs r
 WHERE r.id = ANY ({{arg .Runs}}::uuid[]) AND r.tenant_id = {{arg .Tenant}}
   AND r.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
