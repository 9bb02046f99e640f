-- run: gives a lease up. Index: the primary key.
UPDATE crawl_runs r
   SET lease_owner = NULL, lease_expires_at = NULL
 WHERE r.id = {{arg .Run}} AND {{template "run_held" .}}
