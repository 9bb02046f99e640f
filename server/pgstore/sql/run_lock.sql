-- run: one run, and who works on it, for a change. Locks the row against every other change, append
-- and claim, but not against the foreign keys of its events (crawl/001). What was appended meanwhile is read by the
-- next statements: this one's snapshot is from before it waited.
-- Index: the primary key.
SELECT {{template "run_columns"}}, 0::bigint, r.lease_owner, r.lease_epoch
  FROM crawl_runs r
 WHERE r.id = {{arg .Run}} AND r.tenant_id = {{arg .Tenant}}
   FOR NO KEY UPDATE
