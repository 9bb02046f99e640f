-- settle: one dead letter, for one failed destination of a row that cannot arrive; settle_dead.sql is next. ?1 position, ?2 id, ?3 generation, ?4 now; ?5 the letter's id,
-- ?6 attempts, ?7 error, ?8 reason, ?9 destination, ?10 the error that the history ends with, ?11 default tenant, ?12 table.
-- Guarded as settle_delivered.sql: none is written for a row that somebody else has settled. Index: the position's.
-- A payload that is no JSON, which only a mapped table can have, is kept as a JSON string, and bytes as their hexadecimal digits. A deleted row is kept in origin, each
-- column as it was stored; the letter knows the payload.
INSERT INTO job_dlq (id, source, original_job_id, app_id, type, payload, error_reason, attempts, error_history, destination, outbox_table, event_key, generation, position, origin)
SELECT ?5, 'event', ?2,
       coalesce({{if .App}}e.{{.App}}{{else}}NULL{{end}},
                (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{if .Tenant}}coalesce(nullif(e.{{.Tenant}}, ''), ?11){{else}}?11{{end}}))),
       coalesce(CAST(e.{{.Topic}} AS TEXT), ''),
       CASE WHEN e.{{.Payload}} IS NULL THEN 'null'
            WHEN typeof(e.{{.Payload}}) = 'blob' THEN json_quote(hex(e.{{.Payload}}))
            WHEN json_valid(e.{{.Payload}}) THEN CAST(e.{{.Payload}} AS TEXT)
            ELSE json_quote(CAST(e.{{.Payload}} AS TEXT)) END,
       ?8, ?6, json_insert({{template "history" .}}, '$[#]', json_object('error', {{if and .ErrorHistory (not .DeleteDead)}}?10{{else}}?7{{end}}, 'timestamp', ?4)),
       nullif(?9, ''), ?12, {{if .Key}}CAST(e.{{.Key}} AS TEXT){{else}}NULL{{end}},
       {{template "row_generation" .}}, e.{{.Position}},
       {{if .DeleteDead}}json_object({{range $i, $c := .Columns}}{{if $i}}, {{end}}{{$c.Text}}, CASE typeof(e.{{$c.Name}}) WHEN 'blob' THEN hex(e.{{$c.Name}}) ELSE e.{{$c.Name}} END{{end}}){{else}}NULL{{end}}
  FROM {{.Table}} AS e
 WHERE {{template "claimed" .}} AND ?7 IS NOT NULL AND ?10 IS NOT NULL AND ?11 IS NOT NULL
