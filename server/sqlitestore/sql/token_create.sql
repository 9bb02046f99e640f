-- token: inserts one. Index: the primary key.
INSERT INTO outbox_tokens (id, name, tenant_id, scopes, sha256, created_at, expires_at)
VALUES ({{arg .ID}}, {{arg .Name}}, {{arg .Tenant}}, {{arg .Scopes}}, {{arg .Sum}}, {{arg .Now}}, {{if .Microseconds}}{{arg .Until}}{{else}}NULL{{end}})
RETURNING {{template "token_columns"}}
