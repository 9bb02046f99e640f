-- token: makes one invalid, and records it. $1 id, $2 actor. Locks its row. Index: the primary key. One that is revoked
-- keeps the time of it.
WITH revoked AS (
    UPDATE outbox_tokens SET revoked_at = now() WHERE id = $1 AND revoked_at IS NULL
    RETURNING id, name, tenant_id, scopes, created_at, expires_at, revoked_at
), recorded AS (
    INSERT INTO outbox_audit (actor, action, letters, filter, detail)
    SELECT $2, 'token revoke', 0, jsonb_build_object('token', id), jsonb_build_object('tenant', tenant_id, 'name', name) FROM revoked
)
SELECT * FROM revoked
