-- replay: puts archived rows back into their table, as they were, at their old positions, undelivered. $1 positions, $2
-- ids, $3 until, $4 destination or NULL, $5 the table as the archive has it. Locks the rows it inserts. The archive
-- keeps its row. Index: outbox_archive's primary key; that of the position or of the id.
WITH newest AS (
    SELECT DISTINCT ON (a.id, a.position) a.row
      FROM unnest($1::bigint[], $2::uuid[]) AS c (position, id)
      JOIN outbox_archive a ON a.table_name = $5 AND a.id = c.id AND a.position = c.position
     ORDER BY a.id, a.position, a.archived_at DESC
)
INSERT INTO {{.Table}} ({{range $i, $c := .Columns}}{{if $i}}, {{end}}{{$c}}{{end}}) OVERRIDING SYSTEM VALUE
SELECT {{range $i, $c := .Columns}}{{if $i}}, {{end}}
       {{- if eq $c $.Attempts}}0
       {{- else if eq $c $.NextRetryAt}}NULL
       {{- else if eq $c $.DeliveredAt}}NULL
       {{- else if eq $c $.Status}}{{$.Pending}}
       {{- else if eq $c $.Generation}}coalesce(e.{{$c}}, 0) + 1
       {{- else if eq $c $.DeliveredTo}}{{template "replay_served" $}}
       {{- else}}e.{{$c}}{{end}}
       {{- end}}
  FROM newest n, jsonb_populate_record(NULL::{{.Table}}, n.row) e
 WHERE {{template "replay_delivered" .}} AND e.{{.DeliveredAt}} < $3::timestamptz
   AND ($4::text IS NULL OR true) -- a statement must name all its parameters
   AND NOT EXISTS (SELECT FROM {{.Table}} x WHERE x.{{.Position}} = e.{{.Position}} AND x.{{.ID}} = e.{{.ID}})
