-- token: one, its hash, and whether it has expired. Locks nothing. Index: the primary key. It is asked at each request
-- to the API.
SELECT {{template "token_columns"}}, sha256, coalesce(expires_at <= {{arg .Now}}, 0)
  FROM outbox_tokens
 WHERE id = {{arg .ID}}
