-- token: all of a tenant, or all, newest first. Locks nothing. Index: none; an installation has some dozens of them.
SELECT {{template "token_columns"}}
  FROM outbox_tokens k
 {{- with .Tenant}}
 WHERE k.tenant_id = {{arg .}}
 {{- end}}
 ORDER BY k.created_at DESC, k.id

{{- define "token_columns"}}k.id, k.name, k.tenant_id, to_json(k.scopes)::text, k.created_at, k.expires_at, k.revoked_at{{end}}
