-- dlq: which keys a replay of the chosen letters would put out of order. Locks nothing. Index for the letters:
-- job_dlq_replay. Later events of the keys are found by one pass over the outbox table and an index of the chosen keys
-- that SQLite makes for it: none is kept of a key on delivered rows. This is for a dry run only.
WITH chosen AS MATERIALIZED (
    SELECT l.id, l.original_job_id AS event, l.position, l.generation, l.origin
      FROM job_dlq l
     WHERE {{template "dlq_where" .}} AND l.outbox_table = {{arg .RawTable}}
), fit AS MATERIALIZED (
    SELECT c.id FROM chosen c
    {{- if .DeleteDead}}
     WHERE c.origin IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {{.Table}} AS e WHERE e.{{.Position}} = c.position)
    {{- else}} CROSS JOIN {{.Table}} AS e ON {{template "dlq_same" .}} AND ({{template "dlq_dead" .}}){{end}}
), pending AS MATERIALIZED (
    SELECT l.id, l.original_job_id AS event, l.position, l.origin FROM job_dlq l
     WHERE l.replayed_at IS NULL AND l.discarded_at IS NULL AND l.outbox_table = {{arg .RawTable}}
), key AS MATERIALIZED (
    SELECT {{template "order_key" .}} AS text, min({{if .Key}}e.{{.Key}}{{else}}NULL{{end}}) AS name, min(e.{{.Position}}) AS first, max(e.{{.Position}}) AS last
      FROM {{template "dlq_rows_chosen" .}}
     GROUP BY 1
), later AS MATERIALIZED (
    SELECT k.text, max(NOT e.{{template "undelivered" .}}) AS delivered
      FROM {{.Table}} AS e CROSS JOIN key k ON k.text = {{template "order_key" .}}
     WHERE e.{{.Position}} > k.first {{if .Status}}AND e.{{.Status}} <> {{.Dead}}{{end}}
     GROUP BY k.text
), behind AS MATERIALIZED (
    SELECT DISTINCT k.text
      FROM {{template "dlq_rows_pending" .}} JOIN key k ON k.text = {{template "order_key" .}}
     WHERE e.{{.Position}} < k.last AND {{if .DeleteDead}}e{{else}}c{{end}}.letter NOT IN (SELECT id FROM chosen)
)
SELECT (SELECT count(*) FROM chosen) - (SELECT count(*) FROM fit),
       {{template "dlq_keys" "text IN (SELECT text FROM later WHERE delivered)"}},
       {{template "dlq_keys" "text IN (SELECT text FROM later WHERE NOT delivered)"}},
       {{template "dlq_keys" "text IN (SELECT text FROM behind)"}}

{{- define "dlq_keys"}}(SELECT count(*) FROM key WHERE {{.}}), (SELECT json_group_array(name) FROM (SELECT CAST(name AS TEXT) AS name FROM key WHERE {{.}} ORDER BY name LIMIT 10)){{end}}

{{- /* The rows of letters, as e: in their table, or as they were when they left. */ -}}
{{- define "dlq_rows_chosen"}}{{if .DeleteDead}}(SELECT {{template "dlq_origin" .}} FROM chosen c) AS e{{else}}chosen c CROSS JOIN {{.Table}} AS e ON {{template "dlq_same" .}}{{end}}{{end}}
{{- define "dlq_rows_pending"}}
    {{- if .DeleteDead}}(SELECT {{template "dlq_origin" .}} FROM pending c) AS e
    {{- else}}(SELECT id AS letter, event, position FROM pending) AS c CROSS JOIN {{.Table}} AS e ON {{template "dlq_same" .}}{{end}}
{{- end}}
{{- define "dlq_origin"}}c.id AS letter, c.position AS {{.Position}}{{range .KeyColumns}}, {{template "dlq_kept" .Text}} AS {{.Name}}{{end}}{{end}}
