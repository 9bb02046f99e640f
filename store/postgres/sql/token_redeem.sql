-- token: takes a ticket away and tells whose it was, if it and its token are valid. $1 SHA-256. Locks the ticket: of two who redeem it at once the second waits and
-- finds nothing. Index: both primary keys.
DELETE FROM outbox_tickets t USING outbox_tokens k
 WHERE t.sha256 = $1 AND t.expires_at > now()
   AND k.id = t.token_id AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
RETURNING t.token_id, t.tenant_id, t.scopes
