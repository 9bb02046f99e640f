-- dlq: a page of the record of operators' actions, newest first. Locks nothing. Index: outbox_audit's primary key.
SELECT u.id, u.at, u.actor, u.action, u.letters, u.filter, u.reason, u.detail, u.db_user AS login
  FROM outbox_audit u
 WHERE true
       {{- with .A.Action}} AND u.action = {{arg .}}::text{{end}}
       {{- with .A.Actor}} AND u.actor = {{arg .}}::text{{end}}
       {{- if .A.Since}} AND u.at >= {{arg .A.Since}}::timestamptz{{end}}
       {{- if .A.Until}} AND u.at < {{arg .A.Until}}::timestamptz{{end}}
       {{- with .A.After}} AND u.id < {{arg .}}::text::uuid{{end}}
 ORDER BY u.id DESC
 LIMIT {{arg .Limit}}
