-- token: those of some that are neither expired nor revoked. Locks nothing. Index: the primary key. A gateway asks it
-- every few seconds, for the tokens of its open streams. CROSS JOIN keeps the order: with statistics the planner would
-- read all tokens.
SELECT outbox_tokens.id
  FROM json_each({{arg .IDs}}) i
 CROSS JOIN outbox_tokens ON outbox_tokens.id = i.value
 WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {{arg .Now}})
