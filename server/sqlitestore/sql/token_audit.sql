-- token: the record of what an operator did to a token, in the transaction of the action.
INSERT INTO outbox_audit (id, at, actor, action, letters, filter, detail)
VALUES ({{arg .ID}}, {{arg .Now}}, {{arg .Actor}}, {{arg .Action}}, 0, {{arg .Filter}}, {{arg .Detail}})
