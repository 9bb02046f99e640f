-- dlq: a page of the record of operators' actions, newest first. Locks nothing. Index: outbox_audit's primary key.
SELECT u.id, u.at, u.actor, u.action, u.letters, u.filter, u.reason, u.detail
  FROM outbox_audit u
 WHERE true
       {{- with .A.Action}} AND u.action = {{$.Arg .}}{{end}}
       {{- with .A.Actor}} AND u.actor = {{$.Arg .}}{{end}}
       {{- if not .A.Since.IsZero}} AND u.at >= {{.Arg .A.Since}}{{end}}
       {{- if not .A.Until.IsZero}} AND u.at < {{.Arg .A.Until}}{{end}}
       {{- with .A.After}} AND u.id < lower({{$.Arg .}}){{end}}
 ORDER BY u.id DESC
 LIMIT {{.Arg .Limit}}
