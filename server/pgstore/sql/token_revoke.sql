-- token: makes one invalid. Locks its row. Index: the primary key. One that is revoked keeps the time of it.
UPDATE outbox_tokens k SET revoked_at = now() WHERE k.id = {{arg .ID}} AND k.revoked_at IS NULL
RETURNING {{template "token_columns"}}
