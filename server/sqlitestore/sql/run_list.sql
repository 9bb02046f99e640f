-- run: a page of a tenant's runs, newest first, behind the place that the page before ended with. Locks nothing. Rows
-- are read as they are asked for, so ListRuns stops where it has enough bytes. Index: that of (tenant_id, created_at
-- DESC, id DESC), or of those and what is asked for. A text of its own for each filter, because "any or this one" is a
-- condition that no index knows.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}}, 0
  FROM crawl_runs
 WHERE tenant_id = {{arg .Tenant}}
   {{- if not .Begins}} AND (created_at, id) < ({{arg .Before.CreatedAt}}, {{arg .Before.ID}}){{end}}
   {{- with .Status}} AND status = {{arg .}}{{end}}
   {{- with .AppPackage}} AND app_package = {{arg .}}{{end}}
 ORDER BY created_at DESC, id DESC
 LIMIT {{arg .Limit}}
