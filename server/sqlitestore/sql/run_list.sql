-- run: a page of a tenant's runs, newest first. ?1 tenant, ?2 status and ?3 app, '' for any; ?4 and ?5 time and id that
-- the page before ended with, before the first a text that is greater than any. ?6 limit. Locks nothing. Index: that of
-- (tenant_id, created_at DESC, id DESC), or of those and what is asked for. A text of its own for each filter, because
-- "any or this one" is a condition that no index knows.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}}
  FROM crawl_runs
 WHERE tenant_id = ?1
   AND (created_at, id) < (?4, ?5)
   AND {{if .Status}}status = ?2{{else}}?2 = ''{{end}}
   AND {{if .App}}app_package = ?3{{else}}?3 = ''{{end}}
 ORDER BY created_at DESC, id DESC
 LIMIT ?6
