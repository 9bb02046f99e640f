-- token: inserts a ticket. Index: the primary key.
INSERT INTO outbox_tickets (sha256, token_id, scopes, created_at, expires_at)
VALUES ({{arg .Sum}}, {{arg .ID}}, {{arg .Scopes}}, {{arg .Now}}, {{arg .Until}})
RETURNING expires_at
