-- events: how many undelivered ones are chosen, and the last position among them. Locks nothing.
-- Index: that of undelivered positions.
SELECT count(*), coalesce(max(e.{{.Position}}), 0) FROM {{.Table}} AS e WHERE e.{{template "undelivered" .}}{{template "events_selected" .}}

{{- define "events_selected"}}
       {{- with .S.UpTo}} AND e.{{$.Position}} <= {{arg .}}{{end}}
       {{- with .S.IDs}} AND e.{{$.ID}} {{template "among" (arg .)}}{{end}}
       {{- if .Statuses}} AND ({{template "browse_in_status" .}}){{end}}
       {{- template "events_matching" .}}
{{- end}}

{{- /* The rows that a filter is for. What nobody asked for is left out: SQLite plans before it knows values. */ -}}
{{define "events_matching"}}
       {{- with .F.Tenant}} AND {{if $.Tenant}}{{template "column_text" $.Tenant}} = {{arg .}}{{else}}e.{{$.App}} = {{template "app_of" (arg .)}}{{end}}{{end}}
       {{- with .F.Key}} AND {{template "column_text" $.Key}} = {{arg .}}{{end}}
       {{- with .F.Topic}} AND {{template "column_text" $.Topic}} {{template "like" (pattern .)}}{{end}}
       {{- with .F.Type}} AND {{template "column_text" $.AggregateType}} {{template "like" (pattern .)}}{{end}}
       {{- with .F.Trace}} AND {{template "trace_is" $}}{{end}}
       {{- if .F.Since}} AND {{template "written_since" .}}{{end}}
       {{- if .F.Until}} AND {{template "written_until" .}}{{end}}
{{- end}}
