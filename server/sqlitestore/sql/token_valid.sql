-- token: one, its hash, and whether it has expired. ?1 id, ?2 now. Locks nothing. Index: the primary key. It is asked
-- at each request to the API.
SELECT id, name, tenant_id, scopes, created_at, expires_at, revoked_at, sha256, coalesce(expires_at <= ?2, 0)
  FROM outbox_tokens
 WHERE id = ?1
