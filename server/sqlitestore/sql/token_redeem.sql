-- token: takes a ticket away and tells whose it was. ?1 SHA-256, ?2 now. Of two who redeem it at once the second finds
-- nothing: they take turns. Index: the primary key.
-- Whether its token is valid still, and allows as much, is asked next, in the same transaction (token_valid.sql).
DELETE FROM outbox_tickets
 WHERE sha256 = ?1 AND expires_at > ?2
RETURNING token_id, scopes
