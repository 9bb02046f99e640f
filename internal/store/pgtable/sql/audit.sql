-- dlq: the record of an operator's action. $1 actor, $2 action, $3 letters, $4 filter, $5 reason, $6 detail. In the
-- transaction of the action.
INSERT INTO outbox_audit (actor, action, letters, filter, reason, detail) VALUES ($1, $2, $3, $4::jsonb, nullif($5, ''), $6::jsonb)
