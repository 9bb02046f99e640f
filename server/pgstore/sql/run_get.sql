-- run: one run. Locks nothing. Index: the primary key.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}}
  FROM crawl_runs r
 WHERE r.id = {{arg .Run}} AND r.tenant_id = {{arg .Tenant}}

{{- /* In the order of scanRun. In adopted tables these are times without a zone, which now() wrote in the session's and
which pgx would read as UTC. */ -}}
{{define "run_columns" -}}
r.id, r.tenant_id, r.status::text, r.app_package, r.device_config::text, r.max_steps, coalesce(r.goal, ''), r.crawler,
       r.created_at::timestamptz, r.started_at::timestamptz, r.completed_at::timestamptz,
       r.cancelled_at::timestamptz, coalesce(r.error_message, '')
{{- end}}

{{- /* One probe of the unique index on (crawl_id, seq). */ -}}
{{define "run_last_seq" -}}
coalesce((SELECT e.seq FROM crawl_events e WHERE e.crawl_id = r.id ORDER BY e.seq DESC LIMIT 1), 0)
{{- end}}
