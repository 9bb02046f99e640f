-- browse: one row with everything about it. Locks nothing.
-- Index: that of the column, where the table has one; crawl_outbox has one on its position only, outbox_events on its
-- id only.
SELECT {{template "browse_columns" .}},
       {{if .OccurredAt}}{{template "shown_time" .OccurredAt}}{{else}}NULL::timestamptz{{end}} AS occurred_at,
       {{if .SchemaID}}e.{{.SchemaID}}::text{{else}}NULL::text{{end}} AS schema_id,
       {{if .SchemaVersion}}least(e.{{.SchemaVersion}}, 2147483647)::int{{else}}NULL::int{{end}} AS schema_version,
       {{template "lane" .}} AS lane,
       {{if .Sequence}}e.{{.Sequence}}::bigint{{else}}NULL::bigint{{end}} AS sequence,
       {{if .Generation}}e.{{.Generation}}::int{{else}}0{{end}} AS generation,
       {{if .DeliveredTo}}e.{{.DeliveredTo}}::text{{else}}NULL::text{{end}} AS delivered_to,
       {{if .ErrorHistory}}e.{{.ErrorHistory}}::text{{else}}NULL::text{{end}} AS error_history,
       {{if .Metadata}}e.{{.Metadata}}::text{{else}}NULL::text{{end}} AS metadata,
       e.{{.Payload}}::text AS payload
  FROM {{.Table}} e
 WHERE e.{{.ByColumn}} = {{arg .Asked}}::text::{{.ByType}}
       {{- if .Part}} AND e.{{.Part}} = {{.PartValue}}{{end}}
       {{- with .F.Tenant}} AND {{if $.Tenant}}e.{{$.Tenant}}::text = {{arg .}}{{else}}e.{{$.App}} = {{template "app_of" (arg .)}}{{end}}{{end}}
 LIMIT 1
