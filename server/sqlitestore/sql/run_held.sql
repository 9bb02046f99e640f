-- run: its status, and whether a lease holds. After run_renew.sql in one transaction.
-- Index: the primary key.
SELECT status, coalesce({{template "run_held" .}}, 0)
  FROM crawl_runs
 WHERE id = {{arg .Run}}
