-- run: gives a lease up. Index: the primary key.
UPDATE crawl_runs
   SET lease_owner = NULL, lease_expires_at = NULL
 WHERE id = {{arg .Run}} AND {{template "run_held" .}}
