-- token: one that is neither expired nor revoked, and its hash. ?1 id, ?2 now. Locks nothing. Index: the primary key. It is asked at each request to the API.
SELECT id, name, tenant_id, scopes, created_at, expires_at, revoked_at, sha256
  FROM outbox_tokens
 WHERE id = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)
