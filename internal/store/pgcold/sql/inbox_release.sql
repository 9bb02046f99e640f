-- inbox: gives a claim up. Locks its row. Index: the primary key.
DELETE FROM outbox_inbox_claims WHERE key = {{arg .Key}}::uuid AND owner = {{arg .Owner}}::uuid AND done_at IS NULL
