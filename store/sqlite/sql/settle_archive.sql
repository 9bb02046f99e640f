-- settle: puts a row that reached every destination into outbox_archive, as settle_delivered.sql would leave it, before
-- settle_delete.sql in the same transaction. ?1 position, ?2 id, ?3 generation, ?4 now; ?5 table. Index: as there.
INSERT INTO outbox_archive (table_name, id, position, archived_at, row)
SELECT ?5, {{template "archived_id" .}}, e.{{.Position}}, ?4,
       json_object({{range $i, $c := .Archived}}{{if $i}}, {{end}}{{$c.Text}}, {{if eq $c.Name $.Status}}{{$.Delivered}}
           {{- else if eq $c.Name $.DeliveredAt}}?4
           {{- else if eq $c.Name $.NextRetryAt}}NULL
           {{- else}}{{template "archived_value" $c}}{{end}}{{end}})
  FROM {{.Table}} AS e
 WHERE {{template "removed" .}}
