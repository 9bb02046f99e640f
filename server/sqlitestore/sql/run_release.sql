-- run: gives a lease up. ?1 run, ?2 owner, ?3 epoch. Index: the primary key.
UPDATE crawl_runs
   SET lease_owner = NULL, lease_expires_at = NULL
 WHERE id = ?1 AND {{template "run_held"}}
