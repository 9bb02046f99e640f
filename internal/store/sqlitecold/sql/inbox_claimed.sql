-- inbox: who has claimed an effect. Index: the primary key.
SELECT c.owner, c.expires_at, c.done_at, c.answer, c.payload FROM outbox_inbox_claims AS c WHERE c.key = {{arg .Key}}
