-- inbox: who has claimed an effect. Locks nothing. Index: the primary key.
SELECT c.owner, c.expires_at, c.done_at, c.answer, c.payload FROM outbox_inbox_claims c WHERE c.key = {{arg .Key}}::uuid
