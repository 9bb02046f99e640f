-- events: makes events due that wait for their next attempt, for an operator. $1 ids, $2 tenant, $3 key, $4 topic as
-- LIKE has it; NULL for no such condition.
-- Locks the rows that it changes. A relay cannot have them in hand: it does not claim what is not due. Index: that of
-- the waiting rows.
UPDATE {{.Table}} e
   SET {{.NextRetryAt}} = now()
 WHERE e.{{.NextRetryAt}} > now()
   AND e.{{template "undelivered" .}}
   AND {{template "events_selected" .}}

{{- define "events_selected" -}}
    ($1::uuid[] IS NULL OR e.{{.ID}} = ANY ($1))
   AND ($2::text IS NULL OR {{if .Tenant}}e.{{.Tenant}}::text = $2{{else if .App}}e.{{.App}} = {{template "browse_app"}}{{else}}false{{end}})
   AND ($3::text IS NULL OR {{if .Key}}e.{{.Key}}::text = $3{{else}}false{{end}})
   AND ($4::text IS NULL OR e.{{.Topic}}::text LIKE $4)
{{- end}}
