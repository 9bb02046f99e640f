-- events: makes events due that wait for their next attempt, for an operator. Conditions that nobody asked for are
-- left out. Index: that of the waiting rows.
UPDATE {{.Table}} AS e
   SET {{.NextRetryAt}} = {{arg .Now}}
 WHERE e.{{.NextRetryAt}} IS NOT NULL AND (e.{{.NextRetryAt}} > {{arg .Now}} OR e.{{.NextRetryAt}} NOT GLOB '????-??-??T??:??:??.??????Z')
   AND e.{{template "undelivered" .}}{{template "events_selected" .}}

{{- define "events_selected"}}
       {{- with .S.IDs}} AND e.{{$.ID}} IN (SELECT value FROM json_each({{arg .}})){{end}}
       {{- with .S.Tenant}} AND {{if $.Tenant}}e.{{$.Tenant}} = {{arg .}}{{else}}e.{{$.App}} = {{template "app_of" (arg .)}}{{end}}{{end}}
       {{- with .S.Key}} AND e.{{$.Key}} = {{arg .}}{{end}}
       {{- with .S.Topic}} AND e.{{$.Topic}} GLOB {{pattern .}}{{end}}
{{- end}}
