-- token: inserts one, and the record of it. $1 id, $2 name, $3 tenant, $4 scopes, $5 SHA-256 of its secret, $6 seconds
-- until it expires, NULL: never; $7 actor. Locks nothing else. Index: the primary key.
WITH made AS (
    INSERT INTO outbox_tokens (id, name, tenant_id, scopes, sha256, expires_at)
    VALUES ($1, $2, $3, $4, $5, now() + make_interval(secs => $6))
    RETURNING id, name, tenant_id, scopes, created_at, expires_at, revoked_at
), recorded AS (
    INSERT INTO outbox_audit (actor, action, letters, filter, detail)
    SELECT $7, 'token create', 0, jsonb_build_object('token', id), jsonb_build_object('tenant', tenant_id, 'name', name, 'scopes', scopes, 'expires_at', expires_at) FROM made
)
SELECT * FROM made
