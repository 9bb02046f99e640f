-- token: inserts one. $1 id, $2 name, $3 tenant, $4 scopes, $5 SHA-256 of its secret, $6 seconds until it expires, NULL: never. Locks nothing else. Index: the primary key.
INSERT INTO outbox_tokens (id, name, tenant_id, scopes, sha256, expires_at)
VALUES ($1, $2, $3, $4, $5, now() + make_interval(secs => $6))
RETURNING id, name, tenant_id, scopes, created_at, expires_at, revoked_at
