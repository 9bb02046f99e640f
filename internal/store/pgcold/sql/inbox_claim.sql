-- inbox: claims an effect, unless another has it or it was had; returns who has it, but for one who has just
-- committed.
-- Locks its row. Index: the primary key.
WITH taken AS (
    INSERT INTO outbox_inbox_claims AS c (key, payload, owner, expires_at)
    VALUES ({{arg .Key}}::uuid, {{arg .Payload}}::uuid, {{arg .Owner}}::uuid, clock_timestamp() + {{arg .Lease}}::bigint * interval '1 microsecond')
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at, payload = excluded.payload, done_at = NULL, answer = NULL
     WHERE c.done_at IS NULL AND c.expires_at <= clock_timestamp() OR c.done_at <= clock_timestamp() - {{arg .Keep}}::bigint * interval '1 microsecond'
    RETURNING c.owner, c.expires_at, c.done_at, c.answer, c.payload
)
SELECT owner, expires_at, done_at, answer, payload FROM taken
UNION ALL
SELECT c.owner, c.expires_at, c.done_at, c.answer, c.payload FROM outbox_inbox_claims c WHERE c.key = {{arg .Key}}::uuid AND NOT EXISTS (SELECT FROM taken)
