-- inbox: stores the answer of a claim that is still its owner's. Index: the primary key.
UPDATE outbox_inbox_claims SET done_at = {{arg .Now}}, answer = {{arg .Answer}}
 WHERE key = {{arg .Key}} AND owner = {{arg .Owner}} AND done_at IS NULL
