-- token: those of some that are neither expired nor revoked. $1 ids. Locks nothing. Index: the primary key. A gateway
-- asks it every few seconds, for the tokens of its open streams.
SELECT id
  FROM outbox_tokens
 WHERE id = ANY ($1) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
