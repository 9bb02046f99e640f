-- token: makes one invalid. ?1 id, ?2 now. Index: the primary key. One that is revoked keeps the time of it.
UPDATE outbox_tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL
RETURNING id, name, tenant_id, scopes, created_at, expires_at, revoked_at
