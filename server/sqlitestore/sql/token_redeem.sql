-- token: takes a ticket away and tells whose it was, if it and its token are valid. Of two who redeem it at once the
-- second finds nothing: they take turns. Index: both primary keys. What a ticket allows is what its token allows too.
DELETE FROM outbox_tickets
 WHERE sha256 = {{arg .Sum}} AND expires_at > {{arg .Now}}
   AND EXISTS (SELECT 1 FROM outbox_tokens k
                WHERE k.id = token_id AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > {{arg .Now}}))
RETURNING token_id, (SELECT k.tenant_id FROM outbox_tokens k WHERE k.id = token_id),
          (SELECT json_group_array(t.value) FROM json_each(outbox_tickets.scopes) t
            WHERE t.value IN (SELECT s.value FROM outbox_tokens k, json_each(k.scopes) s WHERE k.id = token_id))
