-- events: how many undelivered ones are chosen, and the last position among them. Locks nothing.
-- Index: that of undelivered positions.
SELECT count(*), coalesce(max(e.{{.Position}}), 0) FROM {{.Table}} AS e WHERE e.{{template "undelivered" .}}{{template "events_selected" .}}

{{- define "events_selected"}}
       {{- with .S.UpTo}} AND e.{{$.Position}} <= {{arg .}}{{end}}
       {{- with .S.IDs}} AND e.{{$.ID}} {{template "among" (arg .)}}{{end}}
       {{- with .S.Tenant}} AND {{if $.Tenant}}{{template "column_text" $.Tenant}} = {{arg .}}{{else}}e.{{$.App}} = {{template "app_of" (arg .)}}{{end}}{{end}}
       {{- with .S.Key}} AND {{template "column_text" $.Key}} = {{arg .}}{{end}}
       {{- with .S.Topic}} AND {{template "column_text" $.Topic}} {{template "like" (pattern .)}}{{end}}
{{- end}}
