-- token: inserts a ticket. Index: the primary key.
INSERT INTO outbox_tickets (sha256, token_id, scopes, expires_at)
VALUES ({{arg .Sum}}, {{arg .ID}}, {{arg .Scopes}}::text[], now() + {{arg .Microseconds}}::bigint * interval '1 microsecond')
RETURNING expires_at
