-- run: one run, and who works on it, for a change. The lock is the transaction's: nobody else writes
-- meanwhile. Index: the primary key.
SELECT {{template "run_columns"}}, 0, lease_owner, lease_epoch
  FROM crawl_runs
 WHERE id = {{arg .Run}} AND tenant_id = {{arg .Tenant}}
