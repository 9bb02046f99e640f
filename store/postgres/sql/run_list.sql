-- run: a page of a tenant's runs, newest first. $1 tenant, $2 status and $3 app, '' for any; $4 and $5 time and id that the page before ended with,
-- before the first the greatest there are: with NULL for none the index would give the order, but not the place. $6 limit.
-- Locks nothing. Index: that of (tenant_id, created_at DESC, id DESC), or of those and what is asked for. A text of its own for each filter, because "any or this one"
-- is a condition that no index knows, and a status that no run has would be looked for in all of them. The status is one of crawl.Statuses.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}}
  FROM crawl_runs r
 WHERE r.tenant_id = $1
   AND (r.created_at, r.id) < ($4::timestamptz, $5::uuid)
   AND {{if .Status}}r.status = '{{.Status}}' AND $2::text <> ''{{else}}$2::text = ''{{end}}
   AND {{if .App}}r.app_package = $3{{else}}$3::text = ''{{end}}
 ORDER BY r.created_at DESC, r.id DESC
 LIMIT $6
