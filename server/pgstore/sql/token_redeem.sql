-- token: takes a ticket away and tells whose it was, if it and its token are valid. Locks the ticket: of two who redeem
-- it at once the second waits and finds nothing. Index: both primary keys. What a ticket allows is what its token
-- allows too: whoever can insert tickets could else name any tenant and scope.
DELETE FROM outbox_tickets t USING outbox_tokens k
 WHERE t.sha256 = {{arg .Sum}} AND t.expires_at > now() AND t.scopes && k.scopes
   AND k.id = t.token_id AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
RETURNING k.id, k.tenant_id, to_json(ARRAY(SELECT s FROM unnest(t.scopes) s WHERE s = ANY (k.scopes)))::text
