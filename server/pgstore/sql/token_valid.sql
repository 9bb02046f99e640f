-- token: one, its hash, and whether it has expired. Locks nothing. Index: the primary key. It is asked at each request
-- to the API.
SELECT {{template "token_columns"}}, k.sha256, coalesce(k.expires_at <= now(), false)
  FROM outbox_tokens k
 WHERE k.id = {{arg .ID}}
