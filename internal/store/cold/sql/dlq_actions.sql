-- dlq: a page of the record of operators' actions, newest first. Locks nothing. Index: outbox_audit's primary key.
SELECT u.id, u.at, u.actor, u.action, u.letters, u.filter, u.reason, u.detail, {{template "login"}}
  FROM outbox_audit u
 WHERE true
       {{- with .A.Action}} AND u.action = {{template "text" (arg .)}}{{end}}
       {{- with .A.Actor}} AND u.actor = {{template "text" (arg .)}}{{end}}
       {{- if .A.Since}} AND u.at >= {{template "at" (arg .A.Since)}}{{end}}
       {{- if .A.Until}} AND u.at < {{template "at" (arg .A.Until)}}{{end}}
       {{- with .A.After}} AND u.id < {{template "uuid_of_text" (arg .)}}{{end}}
 ORDER BY u.id DESC
 LIMIT {{arg .Limit}}
