-- subscription: whether the tenant has it. Locks nothing. Index: the primary key.
SELECT EXISTS (SELECT FROM outbox_subscriptions s WHERE {{template "subscription_own" .}})
{{- define "subscription_own"}}s.name = {{arg .Name}}{{with .Tenant}} AND s.tenant = {{arg .}}{{end}}{{end}}
