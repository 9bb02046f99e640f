-- inbox: stores the answer of a claim that is still its owner's. Locks its row. Index: the primary key.
UPDATE outbox_inbox_claims SET done_at = clock_timestamp(), answer = {{arg .Answer}}::bytea
 WHERE key = {{arg .Key}}::uuid AND owner = {{arg .Owner}}::uuid AND done_at IS NULL
