-- token: inserts a ticket and removes up to ten that have expired, so that the table never holds more than are being
-- made. $1 SHA-256, $2 token, $3 scopes, $4 seconds until it expires. Locks those it removes, without waiting for those
-- that another does. Index: outbox_tickets_expires_at.
WITH expired AS (
    SELECT sha256 FROM outbox_tickets WHERE expires_at < now() ORDER BY expires_at LIMIT 10 FOR UPDATE SKIP LOCKED
), swept AS (
    DELETE FROM outbox_tickets WHERE sha256 IN (SELECT sha256 FROM expired)
)
INSERT INTO outbox_tickets (sha256, token_id, scopes, expires_at)
VALUES ($1, $2, $3, now() + make_interval(secs => $4))
RETURNING expires_at
