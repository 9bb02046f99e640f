-- token: the record of what an operator did to a token, in the transaction of the action.
INSERT INTO outbox_audit (actor, action, letters, filter, detail)
VALUES ({{arg .Actor}}, {{arg .Action}}, 0, {{arg .Filter}}::text::jsonb, {{arg .Detail}}::text::jsonb)
