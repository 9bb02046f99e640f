-- audit: the record of an operator's action, in its transaction. Locks the inserted row.
INSERT INTO outbox_audit (actor, action, letters, filter, reason, detail)
VALUES ({{arg .Actor}}, {{arg .Action.Action}}, {{arg .Rows}}, {{arg .Filter}}::jsonb, nullif({{arg .Reason}}::text, ''), nullif({{arg .Detail}}::text, '')::jsonb)
