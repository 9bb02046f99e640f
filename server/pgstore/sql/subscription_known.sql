-- subscription: whether the tenant has it, and whether it is paused. Locks nothing. Index: the primary key.
SELECT count(*) > 0, count(s.paused_at) > 0 FROM outbox_subscriptions s WHERE {{template "subscription_own" .}}
{{- define "subscription_own"}}s.name = {{arg .Name}}{{with .Tenant}} AND s.tenant = {{arg .}}{{end}}{{end}}
