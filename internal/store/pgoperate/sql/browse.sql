-- browse: a page of a table's rows for people, newest first. $1 statuses, $2 tenant, $3 key, $4 topic as LIKE has
-- it, $5 where the previous page ended; NULL for no such condition; $6 limit. Locks nothing. A condition that is NULL
-- is folded away when the statement is planned with its values.
-- Index: that of the column it is ordered by (ordered.sql), or for few rows of a rare status that status's partial
-- one.
SELECT {{template "browse_columns" .}}
  FROM {{.Table}} e
 WHERE ($1::text[] IS NULL OR {{template "browse_in_status" .}})
   AND ($2::text IS NULL OR {{if .Tenant}}e.{{.Tenant}}::text = $2{{else if .App}}e.{{.App}} = {{template "browse_app"}}{{else}}false{{end}})
   AND ($3::text IS NULL OR {{if .Key}}e.{{.Key}}::text = $3{{else}}false{{end}})
   AND ($4::text IS NULL OR e.{{.Topic}}::text LIKE $4)
   {{if .Part}}AND e.{{.Part}} = {{.PartValue}}
   {{end}}AND ($5::text IS NULL OR e.{{.ByColumn}} < {{template "browse_after" .}})
 ORDER BY e.{{.ByColumn}} DESC
 LIMIT $6

{{- /* The page before ended with an event id, of which the order may know another column. */ -}}
{{define "browse_after"}}
    {{- if and .TimeID (eq .ByColumn .TimeID)}}coalesce((SELECT c.{{.TimeID}} FROM {{.Table}} c WHERE c.{{.ID}} = $5::text::uuid), $5::text::uuid)
    {{- else}}$5::text::{{.ByType}}{{end}}
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
       coalesce(e.{{.Attempts}}, 0)::int AS attempts,
       {{template "shown_time" .NextRetryAt}} AS next_retry_at,
       {{if .LastError}}e.{{.LastError}}::text{{else}}NULL::text{{end}} AS last_error,
       {{if .Destinations}}to_jsonb(e.{{.Destinations}}){{else}}NULL::jsonb{{end}} AS destinations
{{- end}}

{{- /* A table without a status column has three states all the same. */ -}}
{{define "browse_status"}}
    {{- if .Status -}} e.{{.Status}}::text
    {{- else -}} CASE WHEN e.{{.DeliveredAt}} IS NOT NULL THEN 'delivered' WHEN e.{{.NextRetryAt}} IS NOT NULL THEN 'retry' ELSE 'pending' END
    {{- end -}}
{{end}}

{{- /* Spelled out, because no index serves a CASE. */ -}}
{{define "browse_in_status"}}
    {{- if .Status -}} e.{{.Status}}::text = ANY ($1)
    {{- else -}} ('delivered' = ANY ($1) AND e.{{.DeliveredAt}} IS NOT NULL
         OR 'retry' = ANY ($1) AND e.{{.DeliveredAt}} IS NULL AND e.{{.NextRetryAt}} IS NOT NULL
         OR 'pending' = ANY ($1) AND e.{{.DeliveredAt}} IS NULL AND e.{{.NextRetryAt}} IS NULL)
    {{- end -}}
{{end}}

{{- define "browse_app"}}(SELECT a.id FROM apps a WHERE lower(a.namespace) = lower($2) OR a.id::text = lower($2)){{end}}
