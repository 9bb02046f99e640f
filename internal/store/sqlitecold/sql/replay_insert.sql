-- replay: puts archived rows back into their table, as they were, at their old positions, undelivered. In a write
-- transaction. The archive keeps its row.
-- Index: that of the position.
INSERT INTO {{.Table}} ({{range $i, $c := .Columns}}{{if $i}}, {{end}}{{$c.Name}}{{end}})
SELECT {{range $i, $c := .Columns}}{{if $i}}, {{end}}
       {{- if eq $c.Name $.Attempts}}0
       {{- else if eq $c.Name $.NextRetryAt}}NULL
       {{- else if eq $c.Name $.DeliveredAt}}NULL
       {{- else if eq $c.Name $.Status}}{{$.Pending}}
       {{- else if eq $c.Name $.Generation}}coalesce(e.{{$c.Name}}, 0) + 1
       {{- else if eq $c.Name $.DeliveredTo}}{{template "replay_served" $}}
       {{- else if eq $c.Name $.Payload}}coalesce(e.{{$c.Name}}, 'null')
       {{- else}}e.{{$c.Name}}{{end}}
       {{- end}}
  FROM ({{template "archived_rows" .}} WHERE a.table_name = {{arg .Leased}} AND a.position IN (SELECT value FROM json_each({{arg .Positions}})) GROUP BY a.id, a.position) AS e
 WHERE {{template "replay_delivered" .}} AND {{template "instant" .DeliveredAt}} < {{arg .D.Until}}
   AND NOT EXISTS (SELECT 1 FROM {{.Table}} AS x WHERE x.{{.Position}} = e.{{.Position}})
