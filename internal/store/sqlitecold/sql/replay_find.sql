-- replay: the delivered events that are chosen, in the order of their positions, from the table and from the archive.
-- Conditions that nobody asked for are left out. Locks nothing.
-- Index: none has the time of delivery (docs/adr/0012); it reads the table once.
SELECT e.{{.Position}}, e.{{.ID}}, false
  FROM {{.Table}} AS e
 WHERE {{template "replay_chosen" .}}
UNION ALL
SELECT e.{{.Position}}, e.{{.ID}}, true
  FROM ({{template "archived_rows" .}} WHERE a.table_name = {{arg .Leased}} AND a.archived_at >= {{arg .D.Since}} GROUP BY a.id, a.position) AS e
 WHERE {{template "replay_chosen" .}}
   AND NOT EXISTS (SELECT 1 FROM {{.Table}} AS x WHERE x.{{.Position}} = e.{{.Position}} AND x.{{.ID}} = e.{{.ID}})
 ORDER BY 1

{{- define "replay_delivered"}}{{if .Status}}e.{{.Status}} = {{.Delivered}} AND {{end}}e.{{.DeliveredAt}} IS NOT NULL{{end}}

{{- define "replay_chosen" -}}
    {{template "replay_delivered" .}} AND {{template "instant" .DeliveredAt}} >= {{arg .D.Since}} AND {{template "instant" .DeliveredAt}} < {{arg .D.Until}}
       {{- with .D.Topic}} AND e.{{$.Topic}} GLOB {{pattern .}}{{end}}
       {{- with .D.Key}} AND e.{{$.Key}} = {{arg .}}{{end}}
       {{- with .D.Tenant}} AND {{if $.Tenant}}e.{{$.Tenant}} = {{arg .}}{{else}}e.{{$.App}} = {{template "app_of" (arg .)}}{{end}}{{end}}
       {{- with .D.Destination}} AND json_type(e.{{$.Destinations}}) = 'array' AND {{arg .}} IN (SELECT d.value FROM json_each(e.{{$.Destinations}}) d){{end}}
{{- end}}

{{- /* Archived rows with their columns, the newest of each: with max(), SQLite takes the others from the row that has
it. What is JSON was archived as JSON (retention_keep.sql). */ -}}
{{define "archived_rows" -}}
    SELECT max(a.archived_at){{range .Columns}}, {{if .JSON -}}
        nullif(a.row -> ('$."' || {{.Text}} || '"'), 'null')
        {{- else}}a.row ->> ('$."' || {{.Text}} || '"'){{end}} AS {{.Name}}{{end}}
      FROM outbox_archive AS a
{{- end}}
