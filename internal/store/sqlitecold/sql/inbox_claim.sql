-- inbox: claims an effect, unless another has it or it was had: then no row. In a write transaction. Index: the
-- primary key.
INSERT INTO outbox_inbox_claims AS c (key, payload, owner, expires_at) VALUES ({{arg .Key}}, {{arg .Payload}}, {{arg .Owner}}, {{arg .Until}})
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at, payload = excluded.payload, done_at = NULL, answer = NULL
 WHERE c.done_at IS NULL AND c.expires_at <= {{arg .Now}} OR c.done_at <= {{arg .Cut}}
RETURNING owner, expires_at, done_at, answer, payload
