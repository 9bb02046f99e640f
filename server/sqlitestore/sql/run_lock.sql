-- run: one run, and who works on it, for a change. ?1 tenant, ?2 id. The lock is the transaction's: nobody else writes
-- meanwhile. Index: the primary key.
SELECT {{template "run_columns"}}, 0, lease_owner, lease_epoch
  FROM crawl_runs
 WHERE id = ?2 AND tenant_id = ?1
