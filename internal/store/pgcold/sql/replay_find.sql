-- replay: the delivered events that are chosen, in the order of their positions, from the table and from the archive.
-- Conditions that nobody asked for are left out. Locks nothing.
-- Index: that of topics or of the key, where the table has one on delivered rows; it reads the table once otherwise,
-- since no index has the time of delivery (docs/adr/0012).
WITH newest AS (
    SELECT DISTINCT ON (a.id, a.position) a.row
      FROM outbox_archive a
     WHERE a.table_name = {{arg .Leased}} AND a.archived_at >= {{arg .D.Since}}::timestamptz
     ORDER BY a.id, a.position, a.archived_at DESC
)
SELECT e.{{.Position}}::bigint AS position, e.{{.ID}} AS id, false AS archived
  FROM {{.Table}} e
 WHERE {{template "replay_chosen" .}}
UNION ALL
SELECT e.{{.Position}}::bigint, e.{{.ID}}, true
  FROM newest n, jsonb_populate_record(NULL::{{.Table}}, n.row) e
 WHERE {{template "replay_chosen" .}}
   AND NOT EXISTS (SELECT FROM {{.Table}} x WHERE x.{{.Position}} = e.{{.Position}} AND x.{{.ID}} = e.{{.ID}})
 ORDER BY 1

{{- define "replay_delivered"}}{{if .Status}}e.{{.Status}} = {{.Delivered}} AND {{end}}e.{{.DeliveredAt}} IS NOT NULL{{end}}

{{- define "replay_chosen" -}}
    {{template "replay_delivered" .}}
   AND e.{{.DeliveredAt}} >= {{arg .D.Since}}::timestamptz AND e.{{.DeliveredAt}} < {{arg .D.Until}}::timestamptz
       {{- with .D.Topic}} AND e.{{$.Topic}}::text LIKE {{pattern .}}{{end}}
       {{- with .D.Key}} AND e.{{$.Key}}::text = {{arg .}}{{end}}
       {{- with .D.Tenant}} AND {{if $.Tenant}}e.{{$.Tenant}}::text = {{arg .}}{{else}}e.{{$.App}} = {{template "app_of" (arg .)}}{{end}}{{end}}
       {{- with .D.Destination}} AND jsonb_typeof(e.{{$.Destinations}}::jsonb) = 'array' AND e.{{$.Destinations}}::jsonb ? {{arg .}}{{end}}
{{- end}}
