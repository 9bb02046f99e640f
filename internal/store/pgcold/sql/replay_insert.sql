-- replay: puts archived rows back into their table, as they were, at their old positions, undelivered. Locks the rows
-- it inserts. The archive keeps its row. Index: outbox_archive's primary key; that of the position or of the id.
WITH newest AS (
    SELECT DISTINCT ON (a.id, a.position) a.row
      FROM unnest({{arg .Positions}}::bigint[], {{arg .IDs}}::uuid[]) AS c (position, id)
      JOIN outbox_archive a ON a.table_name = {{arg .Leased}} AND a.id = c.id AND a.position = c.position
     ORDER BY a.id, a.position, a.archived_at DESC
)
INSERT INTO {{.Table}} ({{range $i, $c := .Columns}}{{if $i}}, {{end}}{{$c.Name}}{{end}}) OVERRIDING SYSTEM VALUE
SELECT {{range $i, $c := .Columns}}{{if $i}}, {{end}}
       {{- if eq $c.Name $.Attempts}}0
       {{- else if eq $c.Name $.NextRetryAt}}NULL
       {{- else if eq $c.Name $.DeliveredAt}}NULL
       {{- else if eq $c.Name $.Status}}{{$.Pending}}
       {{- else if eq $c.Name $.Generation}}coalesce(e.{{$c.Name}}, 0) + 1
       {{- else if eq $c.Name $.DeliveredTo}}{{template "replay_served" $}}
       {{- else}}e.{{$c.Name}}{{end}}
       {{- end}}
  FROM newest n, jsonb_populate_record(NULL::{{.Table}}, n.row) e
 WHERE {{template "replay_delivered" .}} AND e.{{.DeliveredAt}} < {{arg .D.Until}}::timestamptz
   AND NOT EXISTS (SELECT FROM {{.Table}} x WHERE x.{{.Position}} = e.{{.Position}} AND x.{{.ID}} = e.{{.ID}})
