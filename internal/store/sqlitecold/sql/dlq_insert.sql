-- dlq: puts rows that left their table when they died back into it, as they were, at their old position. In a write
-- transaction. Returns the events it put back.
-- Index: that of the position. The id is not looked for: crawl_outbox has no index on it, and a row of the same event
-- stands at the same position.
WITH chosen AS MATERIALIZED (
    {{template "dlq_chosen" .}}
), ranked AS MATERIALIZED (
    SELECT c.event, c.generation, c.destinations, c.whole, l.origin, l.position, l.payload, l.error_history,
           row_number() OVER (PARTITION BY c.event ORDER BY l.generation DESC, l.id DESC) AS rank
      FROM chosen c JOIN job_dlq l ON l.original_job_id = c.event AND l.id IN (SELECT value FROM json_each({{arg .IDs}}))
     WHERE l.origin IS NOT NULL
)
INSERT INTO {{.Table}} ({{range $i, $c := .Columns}}{{if $i}}, {{end}}{{$c.Name}}{{end}})
SELECT {{range $i, $c := .Columns}}{{if $i}}, {{end}}
       {{- if eq $c.Name $.Payload}}{{if $.Replace}}{{arg $.Body}}{{else}}(SELECT CASE j.type WHEN 'null' THEN c.payload WHEN 'false' THEN NULL {{template "dlq_class" $c.Text}}){{end}}
       {{- else if eq $c.Name $.Attempts}}0
       {{- else if eq $c.Name $.NextRetryAt}}NULL
       {{- else if eq $c.Name $.Generation}}max(coalesce({{template "dlq_kept" $c.Text}}, 0), c.generation) + 1
       {{- else if eq $c.Name $.DeliveredTo}}{{template "dlq_served" $.InOrigin}}
       {{- else if eq $c.Name $.ErrorHistory}}c.error_history
       {{- else}}{{template "dlq_kept" $c.Text}}{{end}}
       {{- end}}
  FROM (SELECT c.*{{if and .Destinations .DeliveredTo}}, {{template "dlq_kept" .Kept.Destinations}} AS goes, {{template "dlq_kept" .Kept.DeliveredTo}} AS served{{end}} FROM ranked c WHERE c.rank = 1) c
 WHERE NOT EXISTS (SELECT 1 FROM {{.Table}} AS x WHERE x.{{.Position}} = c.position)
RETURNING {{.ID}}
