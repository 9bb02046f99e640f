-- audit: the record of an operator's action, in its transaction.
INSERT INTO outbox_audit (id, at, actor, action, letters, filter, reason, detail)
VALUES ({{arg .ID}}, {{arg .Now}}, {{arg .Actor}}, {{arg .Action.Action}}, {{arg .Rows}}, {{arg .Filter}}, nullif({{arg .Reason}}, ''), nullif({{arg .Detail}}, ''))
