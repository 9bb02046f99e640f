-- run: its status, and whether a lease holds. ?1 run, ?2 owner, ?3 epoch. After run_renew.sql in one transaction.
-- Index: the primary key.
SELECT status, coalesce({{template "run_held"}}, 0)
  FROM crawl_runs
 WHERE id = ?1
