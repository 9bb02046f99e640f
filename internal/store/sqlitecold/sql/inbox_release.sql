-- inbox: gives a claim up. Index: the primary key.
DELETE FROM outbox_inbox_claims WHERE key = {{arg .Key}} AND owner = {{arg .Owner}} AND done_at IS NULL
