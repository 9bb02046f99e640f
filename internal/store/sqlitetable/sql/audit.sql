-- dlq: the record of an operator's action. ?1 id, ?2 now, ?3 actor, ?4 action, ?5 letters, ?6 filter, ?7 reason, ?8
-- detail. In the transaction of the action.
INSERT INTO outbox_audit (id, at, actor, action, letters, filter, reason, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, nullif(?7, ''), ?8)
