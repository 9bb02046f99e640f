-- run: one run. Locks nothing. Index: the primary key.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}}
  FROM crawl_runs
 WHERE id = {{arg .Run}} AND tenant_id = {{arg .Tenant}}

{{- /* In the order of scanRun. Without the table's name: RETURNING knows no alias. */ -}}
{{define "run_columns" -}}
id, tenant_id, status, app_package, device_config, max_steps, coalesce(goal, ''), crawler,
       created_at, started_at, completed_at, cancelled_at, coalesce(error_message, '')
{{- end}}

{{- /* One probe of the unique index on (crawl_id, seq). */ -}}
{{define "run_last_seq" -}}
coalesce((SELECT max(e.seq) FROM crawl_events e WHERE e.crawl_id = crawl_runs.id), 0)
{{- end}}
