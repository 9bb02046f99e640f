-- token: all of a tenant, or all for '', newest first. ?1 tenant. Locks nothing. Index: none; an installation has some
-- dozens of them.
SELECT id, name, tenant_id, scopes, created_at, expires_at, revoked_at
  FROM outbox_tokens
 WHERE ?1 = '' OR tenant_id = ?1
 ORDER BY created_at DESC, id
