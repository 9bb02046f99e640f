-- token: inserts one. ?1 id, ?2 name, ?3 tenant, ?4 scopes as a JSON array, ?5 SHA-256 of its secret, ?6 now, ?7 when
-- it expires, NULL: never. Index: the primary key.
INSERT INTO outbox_tokens (id, name, tenant_id, scopes, sha256, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
RETURNING id, name, tenant_id, scopes, created_at, expires_at, revoked_at
