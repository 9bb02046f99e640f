-- token: inserts one. Locks nothing else. Index: the primary key.
INSERT INTO outbox_tokens AS k (id, name, tenant_id, scopes, sha256, expires_at)
VALUES ({{arg .ID}}, {{arg .Name}}, {{arg .Tenant}}, {{arg .Scopes}}::text[], {{arg .Sum}}, {{if .Microseconds}}now() + {{arg .Microseconds}}::bigint * interval '1 microsecond'{{else}}NULL{{end}})
RETURNING {{template "token_columns"}}
