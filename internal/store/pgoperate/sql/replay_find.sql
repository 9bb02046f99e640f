-- replay: the delivered events that are chosen, in the order of their positions, from the table and from the archive.
-- $1 since, $2 until, $3 topic as LIKE has it, $4 key, $5 tenant, $6 destination; NULL for no such condition; $7 the
-- table as the archive has it. Locks nothing.
-- Index: that of topics or of the key, where the table has one on delivered rows; it reads the table once otherwise,
-- since no index has the time of delivery (docs/adr/0013).
WITH newest AS (
    SELECT DISTINCT ON (a.id, a.position) a.row
      FROM outbox_archive a
     WHERE a.table_name = $7 AND a.archived_at >= $1::timestamptz
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
   AND e.{{.DeliveredAt}} >= $1::timestamptz AND e.{{.DeliveredAt}} < $2::timestamptz
   AND ($3::text IS NULL OR e.{{.Topic}}::text LIKE $3)
   AND ($4::text IS NULL OR {{if .Key}}e.{{.Key}}::text = $4{{else}}false{{end}})
   AND ($5::text IS NULL OR {{if .Tenant}}e.{{.Tenant}}::text = $5{{else if .App}}e.{{.App}} = (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower($5) OR a.id::text = lower($5)){{else}}false{{end}})
   AND ($6::text IS NULL OR {{if .Destinations}}jsonb_typeof(e.{{.Destinations}}::jsonb) = 'array' AND e.{{.Destinations}}::jsonb ? $6{{else}}false{{end}})
{{- end}}
