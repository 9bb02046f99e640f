-- run: its status, and whether a lease holds. Locks nothing. After run_renew.sql in one
-- transaction, which may have waited for what this snapshot sees. Index: the primary key.
SELECT r.status::text, coalesce({{template "run_held" .}}, false)
  FROM crawl_runs r
 WHERE r.id = {{arg .Run}}
