-- token: those of some that are neither expired nor revoked. Locks nothing. Index: the primary key. A gateway asks it
-- every few seconds, for the tokens of its open streams.
SELECT k.id
  FROM outbox_tokens k
 WHERE k.id = ANY ({{arg .IDs}}::text[]) AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
