-- token: inserts a ticket. ?1 SHA-256, ?2 token, ?3 scopes as a JSON array, ?4 now, ?5 when it expires. Index: the
-- primary key.
INSERT INTO outbox_tickets (sha256, token_id, scopes, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5)
