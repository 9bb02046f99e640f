-- run: a page of a tenant's runs, newest first. $1 tenant, $2 status and $3 app, '' for any; $4 and $5 time and id that the page before ended with,
-- before the first the greatest there are: with NULL for none the index would give the order, but not the place. $6 limit.
-- Locks nothing. Index: that of (tenant_id, created_at DESC, id DESC). A status or app has no index of its own: it is
-- looked for among the tenant's runs.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}}
  FROM crawl_runs r
 WHERE r.tenant_id = $1
   AND (r.created_at, r.id) < ($4::timestamptz, $5::uuid)
   AND ($2::text = '' OR r.status::text = $2)
   AND ($3::text = '' OR r.app_package = $3)
 ORDER BY r.created_at DESC, r.id DESC
 LIMIT $6
