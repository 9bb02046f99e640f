-- dlq: puts rows that left their table when they died back into it, as they were, at their old position. Locks the
-- rows it inserts, and what they refer to against deletion. Returns the events it put back. Into a log it is another
-- row, at its end, because the rows that are there stay; then nothing is looked for.
-- Index: that of the position. The id is not looked for: crawl_outbox has no index on it, and a row of the same event
-- stands at the same position.
WITH chosen AS MATERIALIZED (
    {{template "dlq_chosen" .}}
), newest AS MATERIALIZED (
    SELECT DISTINCT ON (l.original_job_id) c.*, l.origin, l.payload, l.error_history
      FROM chosen c JOIN job_dlq l ON l.original_job_id = c.event AND l.id = ANY ({{arg .IDs}}::uuid[])
     WHERE l.origin IS NOT NULL
     ORDER BY l.original_job_id, l.generation DESC, l.id DESC
)
INSERT INTO {{.Table}} ({{range $i, $c := .Columns}}{{if $i}}, {{end}}{{$c.Name}}{{end}}) OVERRIDING SYSTEM VALUE
SELECT {{range $i, $c := .Columns}}{{if $i}}, {{end}}
       {{- if eq $c.Name $.Payload}}{{if $.Replace}}{{arg $.Body}}::jsonb{{else}}c.payload{{end}}
       {{- else if eq $c.Name $.Attempts}}0
       {{- else if eq $c.Name $.NextRetryAt}}NULL
       {{- else if eq $c.Name $.Generation}}greatest(e.{{$c.Name}}, c.generation) + 1
       {{- else if eq $c.Name $.DeliveredTo}}{{template "dlq_served" $}}
       {{- else if eq $c.Name $.ErrorHistory}}c.error_history
       {{- else}}e.{{$c.Name}}{{end}}
       {{- end}}
  FROM newest c, jsonb_populate_record(NULL::{{.Table}}, c.origin) e
{{- if not .Transaction}}
 WHERE NOT EXISTS (SELECT FROM {{.Table}} x WHERE x.{{.Position}} = e.{{.Position}})
{{- end}}
RETURNING {{.ID}}
