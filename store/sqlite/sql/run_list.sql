-- run: a page of a tenant's runs, newest first. ?1 tenant, ?2 status and ?3 app, '' for any; ?4 and ?5 time and id that the page before ended with,
-- before the first a text that is greater than any. ?6 limit. Locks nothing. Index: that of (tenant_id, created_at DESC, id DESC). A status or app has no index
-- of its own: it is looked for among the tenant's runs.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}}
  FROM crawl_runs
 WHERE tenant_id = ?1
   AND (created_at, id) < (?4, ?5)
   AND (?2 = '' OR status = ?2)
   AND (?3 = '' OR app_package = ?3)
 ORDER BY created_at DESC, id DESC
 LIMIT ?6
