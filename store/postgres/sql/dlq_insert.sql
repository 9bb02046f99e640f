-- dlq: puts rows that left their table when they died back into it, as they were, at their old position. $1 ids of
-- letters, $2 a payload instead of the letter's. Locks the rows it inserts, and what they refer to against deletion.
-- Returns the events it put back.
-- Into a log it is another row, at its end, because the rows that are there stay; then nothing is looked for.
-- Index: that of the position. The id is not looked for: crawl_outbox has no index on it, and a row of the same event
-- stands at the same position.
WITH chosen AS MATERIALIZED (
    {{template "dlq_chosen"}}
), newest AS MATERIALIZED (
    SELECT DISTINCT ON (l.original_job_id) c.*, l.origin, l.payload, l.error_history
      FROM chosen c JOIN job_dlq l ON l.original_job_id = c.event AND l.id = ANY ($1::uuid[])
     WHERE l.origin IS NOT NULL
     ORDER BY l.original_job_id, l.generation DESC, l.id DESC
)
INSERT INTO {{.Table}} ({{range $i, $c := .Columns}}{{if $i}}, {{end}}{{$c}}{{end}}) OVERRIDING SYSTEM VALUE
SELECT {{range $i, $c := .Columns}}{{if $i}}, {{end}}
       {{- if eq $c $.Payload}}coalesce($2::jsonb, c.payload)
       {{- else if eq $c $.Attempts}}0
       {{- else if eq $c $.NextRetryAt}}NULL
       {{- else if eq $c $.Generation}}greatest(e.{{$c}}, c.generation) + 1
       {{- else if eq $c $.DeliveredTo}}{{template "dlq_served" $}}
       {{- else if eq $c $.ErrorHistory}}c.error_history
       {{- else}}e.{{$c}}{{end}}
       {{- end}}
  FROM newest c, jsonb_populate_record(NULL::{{.Table}}, c.origin) e
{{- if not .Transaction}}
 WHERE NOT EXISTS (SELECT FROM {{.Table}} x WHERE x.{{.Position}} = e.{{.Position}})
{{- end}}
RETURNING {{.ID}}
