-- dlq: which keys a replay of the chosen letters would put out of order. Locks nothing. Index for the letters:
-- job_dlq_replay. Later events of the keys are found by one pass over the outbox table and a hash of the chosen keys:
-- no index of a key is kept on delivered rows (docs/adr/0004). This is for a dry run only.
WITH chosen AS MATERIALIZED (
    SELECT l.id, l.original_job_id, l.position, l.generation, l.origin
      FROM job_dlq l
     WHERE {{template "dlq_where" .}} AND l.outbox_table = {{arg .RawTable}}::text
), fit AS MATERIALIZED (
    SELECT c.id FROM chosen c
    {{- if .DeleteDead}}
     WHERE c.origin IS NOT NULL
       {{- if not .Transaction}} AND NOT EXISTS (SELECT FROM {{.Table}} e WHERE e.{{.Position}} = c.position){{end}}
    {{- else}} JOIN {{.Table}} e ON e.{{.ID}} = c.original_job_id {{if .Owed}}AND e.{{.Position}} = c.position {{end}}AND ({{template "dlq_dead" .}}){{end}}
), key AS MATERIALIZED (
    SELECT {{template "order_key" .}} AS hash, min({{if .Key}}e.{{.Key}}::text{{else}}NULL::text{{end}}) AS name, min(e.{{.Position}}) AS first, max(e.{{.Position}}) AS last
      FROM chosen l, {{template "dlq_row" .}}
     GROUP BY 1
), later AS MATERIALIZED (
    SELECT k.hash, bool_or(NOT e.{{template "undelivered" .}}) AS delivered
      FROM {{.Table}} e JOIN key k ON k.hash = {{template "order_key" .}}
     WHERE e.{{.Position}} > k.first {{if .Status}}AND e.{{.Status}} <> {{.Dead}}{{end}}
     GROUP BY k.hash
), behind AS MATERIALIZED (
    SELECT DISTINCT k.hash
      FROM job_dlq l, {{template "dlq_row" .}} JOIN key k ON k.hash = {{template "order_key" .}}
     WHERE l.replayed_at IS NULL AND l.discarded_at IS NULL AND l.outbox_table = {{arg .RawTable}}::text
       AND l.id NOT IN (SELECT id FROM chosen) AND e.{{.Position}} < k.last
)
SELECT (SELECT count(*) FROM chosen) - (SELECT count(*) FROM fit),
       {{template "dlq_keys" "hash IN (SELECT hash FROM later WHERE delivered)"}},
       {{template "dlq_keys" "hash IN (SELECT hash FROM later WHERE NOT delivered)"}},
       {{template "dlq_keys" "hash IN (SELECT hash FROM behind)"}}

{{- define "dlq_keys"}}(SELECT count(*) FROM key WHERE {{.}}), to_jsonb(ARRAY(SELECT name FROM key WHERE {{.}} ORDER BY name LIMIT 10)){{end}}

{{- /* The row of letter l, as e: in its table, or as it was when it left. */ -}}
{{define "dlq_row" -}}
    {{- if .DeleteDead -}} jsonb_populate_record(NULL::{{.Table}}, l.origin) e
    {{- else -}} LATERAL (SELECT * FROM {{.Table}} r WHERE r.{{.ID}} = l.original_job_id{{if .Owed}} AND r.{{.Position}} = l.position{{end}} LIMIT 1) e
    {{- end -}}
{{- end}}
