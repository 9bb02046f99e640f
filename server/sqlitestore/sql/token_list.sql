-- token: all of a tenant, or all, newest first. Locks nothing. Index: none; an installation has some dozens of them.
SELECT {{template "token_columns"}}
  FROM outbox_tokens
 {{- with .Tenant}}
 WHERE tenant_id = {{arg .}}
 {{- end}}
 ORDER BY created_at DESC, id

{{- define "token_columns"}}id, name, tenant_id, scopes, created_at, expires_at, revoked_at{{end}}
