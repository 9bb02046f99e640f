-- browse: a page of a table's rows for people, newest first. Locks nothing. Conditions that nobody asked for are left
-- out.
-- Index: that of the column it is ordered by (ordered.sql), or for few rows of a rare status that status's partial
-- one.
SELECT {{template "browse_columns" .}}
  FROM {{.Table}} e
 WHERE {{template "browse_in_status" .}}
       {{- if .Part}} AND e.{{.Part}} = {{.PartValue}}{{end}}
       {{- template "events_matching" .}}
       {{- with .F.After}} AND e.{{$.ByColumn}} < {{template "browse_after" $}}{{end}}
 ORDER BY e.{{.ByColumn}} DESC
 LIMIT {{arg .F.Limit}}

{{- /* The page before ended with an event id, of which the order may know another column. */ -}}
{{define "browse_after"}}
    {{- if and .TimeID (eq .ByColumn .TimeID)}}coalesce((SELECT c.{{.TimeID}} FROM {{.Table}} c WHERE c.{{.ID}} = {{arg .F.After}}::text::uuid), {{arg .F.After}}::text::uuid)
    {{- else}}{{arg .F.After}}::text::{{.ByType}}{{end}}
{{- end}}

{{- define "browse_columns"}}e.{{.ID}} AS id, e.{{.Position}}::bigint AS position,
       {{template "browse_status" .}} AS status,
       e.{{.Topic}}::text AS topic,
       {{if .Key}}e.{{.Key}}::text{{else}}NULL::text{{end}} AS key,
       {{if .AggregateType}}e.{{.AggregateType}}::text{{else}}NULL::text{{end}} AS aggregate_type,
       {{template "shown_tenant" .}} AS tenant,
       {{if .Source}}e.{{.Source}}::text{{else}}NULL::text{{end}} AS source,
       {{template "shown_written_at" .}} AS written_at,
       {{if .DeliveredAt}}{{template "shown_time" .DeliveredAt}}{{else}}NULL::timestamptz{{end}} AS delivered_at,
       least(coalesce(e.{{.Attempts}}, 0), 2147483647)::int AS attempts,
       {{template "shown_time" .NextRetryAt}} AS next_retry_at,
       {{if .LastError}}e.{{.LastError}}::text{{else}}NULL::text{{end}} AS last_error,
       {{if .Destinations}}e.{{.Destinations}}::text{{else}}NULL::text{{end}} AS destinations
{{- end}}

{{- /* A table without a status column has three states all the same. */ -}}
{{define "browse_status"}}
    {{- if .Status -}} e.{{.Status}}::text
    {{- else -}} CASE WHEN e.{{.DeliveredAt}} IS NOT NULL THEN 'delivered' WHEN e.{{.NextRetryAt}} IS NOT NULL THEN 'retry' ELSE 'pending' END
    {{- end -}}
{{end}}

{{- /* Spelled out, because no index serves a CASE. */ -}}
{{define "browse_in_status"}}
    {{- if not .Statuses}}true
    {{- else if .Status -}} e.{{.Status}}::text = ANY ({{arg .Statuses}}::text[])
    {{- else -}} ('delivered' = ANY ({{arg .Statuses}}::text[]) AND e.{{.DeliveredAt}} IS NOT NULL
         OR 'retry' = ANY ({{arg .Statuses}}::text[]) AND e.{{.DeliveredAt}} IS NULL AND e.{{.NextRetryAt}} IS NOT NULL
         OR 'pending' = ANY ({{arg .Statuses}}::text[]) AND e.{{.DeliveredAt}} IS NULL AND e.{{.NextRetryAt}} IS NULL)
    {{- end -}}
{{end}}
