-- browse: a page of a table's rows for people, newest first. Locks nothing. Conditions that nobody asked for are left
-- out: SQLite plans a statement before it knows its values.
-- Index: the position's gives the order; for the few rows of a rare status the partial one of that status, and a sort,
-- which the + asks for. A partial index is chosen by the very words of its WHERE, which browse_in_status adds.
SELECT {{template "browse_columns" .}}
  FROM {{.Table}} AS e
 WHERE {{template "browse_in_status" .}}
       {{- if .Part}} AND e.{{.Part}} = {{.PartValue}}{{end}}
       {{- template "events_matching" .}}
       {{- with .F.After}} AND e.{{$.Position}} < CAST({{arg .}} AS INTEGER){{end}}
 ORDER BY {{if .Rare}}+{{end}}e.{{.Position}} DESC
 LIMIT {{arg .F.Limit}}

{{- define "browse_columns"}}e.{{.ID}}, e.{{.Position}},
       {{template "browse_status" .}},
       e.{{.Topic}},
       {{if .Key}}e.{{.Key}}{{else}}NULL{{end}},
       {{if .AggregateType}}e.{{.AggregateType}}{{else}}NULL{{end}},
       {{template "browse_tenant" .}},
       {{if .Source}}e.{{.Source}}{{else}}NULL{{end}},
       {{if .WrittenAt}}CAST(e.{{.WrittenAt}} AS TEXT){{else if .TimeID}}e.{{.TimeID}}{{else}}NULL{{end}},
       {{if .DeliveredAt}}CAST(e.{{.DeliveredAt}} AS TEXT){{else}}NULL{{end}},
       coalesce(e.{{.Attempts}}, 0),
       CAST(e.{{.NextRetryAt}} AS TEXT),
       {{if .LastError}}e.{{.LastError}}{{else}}NULL{{end}},
       {{if .Destinations}}e.{{.Destinations}}{{else}}NULL{{end}}
{{- end}}

{{define "browse_tenant"}}{{if .Tenant}}e.{{.Tenant}}{{else if .App}}(SELECT a.namespace FROM apps a WHERE a.id = e.{{.App}}){{else}}NULL{{end}}{{end}}

{{- /* A table without a status column has three states all the same. */ -}}
{{define "browse_status"}}
    {{- if .Status -}} coalesce(e.{{.Status}}, '')
    {{- else -}} CASE WHEN e.{{.DeliveredAt}} IS NOT NULL THEN 'delivered' WHEN e.{{.NextRetryAt}} IS NOT NULL THEN 'retry' ELSE 'pending' END
    {{- end -}}
{{end}}

{{- define "browse_in_status"}}
    {{- if not .Chosen}}true
    {{- else if .Status}}
        {{- if .Only}}e.{{.Status}} = {{.Only}}
        {{- else}}e.{{.Status}} IN ({{range $i, $s := .Chosen}}{{if $i}}, {{end}}{{$s}}{{end}}){{end}}
        {{- if and .Rare (ne .Retrying .Pending)}} AND e.{{.Status}} IN ({{.Retrying}}, {{.Dead}}){{end}}
    {{- else}}CASE WHEN e.{{.DeliveredAt}} IS NOT NULL THEN 'delivered' WHEN e.{{.NextRetryAt}} IS NOT NULL THEN 'retry' ELSE 'pending' END IN
        ({{range $i, $s := .Chosen}}{{if $i}}, {{end}}{{$s}}{{end}})
    {{- end}}
    {{- if .OnlyUndelivered}} AND e.{{template "undelivered" .}}{{end}}
{{- end}}
