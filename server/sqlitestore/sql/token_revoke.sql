-- token: makes one invalid. Index: the primary key. One that is revoked keeps the time of it.
UPDATE outbox_tokens SET revoked_at = {{arg .Now}} WHERE id = {{arg .ID}} AND revoked_at IS NULL
RETURNING {{template "token_columns"}}
