-- events: makes events due that wait for their next attempt, for an operator. Conditions that nobody asked for are
-- left out.
-- Locks the rows that it changes. A relay cannot have them in hand: it does not claim what is not due. Index: that of
-- the waiting rows.
UPDATE {{.Table}} e
   SET {{.NextRetryAt}} = now()
 WHERE e.{{.NextRetryAt}} > now()
   AND e.{{template "undelivered" .}}{{template "events_selected" .}}

{{- define "events_selected"}}
       {{- with .S.IDs}} AND e.{{$.ID}} = ANY ({{arg .}}::uuid[]){{end}}
       {{- with .S.Tenant}} AND {{if $.Tenant}}e.{{$.Tenant}}::text = {{arg .}}{{else}}e.{{$.App}} = {{template "app_of" (arg .)}}{{end}}{{end}}
       {{- with .S.Key}} AND e.{{$.Key}}::text = {{arg .}}{{end}}
       {{- with .S.Topic}} AND e.{{$.Topic}}::text LIKE {{pattern .}}{{end}}
{{- end}}
