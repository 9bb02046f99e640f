-- token: the record of what an operator did to a token. ?1 id, ?2 now, ?3 actor, ?4 action, ?5 the token, ?6 about it.
-- In the transaction of the action.
INSERT INTO outbox_audit (id, at, actor, action, letters, filter, detail) VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6)
