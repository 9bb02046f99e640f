-- settle: one dead letter, for one failed destination of a row that cannot arrive; settle_dead.sql is next. ?1
-- position, ?2 id, ?3 generation, ?4 now; ?5 the letter's id, ?6 attempts, ?7 error, ?8 reason, ?9 destination, ?10 the
-- error that the history ends with, ?11 default tenant, ?12 table.
-- Guarded as settle_delivered.sql: none is written for a row that somebody else has settled. Index: the position's.
-- A payload that is no JSON, which only a mapped table can have, is kept as a JSON string, and bytes as their
-- hexadecimal digits. A deleted row is kept in origin, each column as it was stored, for which dlq_kept
-- (dlq_revive.sql) is the other half: JSON has the classes of SQLite's values but for bytes, which are {"blob": "their
-- hexadecimal digits"}. The payload is null there if the letter knows it exactly (a text that is JSON), and false if
-- there is none.
INSERT INTO job_dlq (id, source, original_job_id, app_id, user_id, request_id, type, payload, error_reason, attempts, error_history, destination,
                     outbox_table, event_key, generation, position, origin, tenant)
SELECT ?5, 'event', ?2,
       coalesce({{if .App}}e.{{.App}}{{else}}NULL{{end}},
                (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{template "letter_tenant" .}}))),
       {{template "letter_user" .}}, {{template "letter_request" .}},
       coalesce(CAST(e.{{.Topic}} AS TEXT), ''), {{template "letter_payload" .}},
       ?8, ?6, json_insert({{template "history" .}}, '$[#]', json_object('error', {{if and .ErrorHistory (not .DeleteDead)}}?10{{else}}?7{{end}}, 'timestamp', ?4)),
       nullif(?9, ''), ?12, {{if .Key}}CAST(e.{{.Key}} AS TEXT){{else}}NULL{{end}},
       {{template "row_generation" .}}, e.{{.Position}},
       {{if .DeleteDead}}json_object({{range .Columns}}{{.Text}}, {{template "origin_value" .Name}}, {{end}}
           {{.PayloadName}}, CASE WHEN e.{{.Payload}} IS NULL THEN json('false') WHEN typeof(e.{{.Payload}}) = 'text' AND json_valid(e.{{.Payload}}) THEN NULL ELSE {{template "origin_value" .Payload}} END){{else}}NULL{{end}},
       {{if .App}}CASE WHEN e.{{.App}} IS NULL THEN {{template "letter_tenant" .}} END{{else}}{{template "letter_tenant" .}}{{end}}
  FROM {{.Table}} AS e
 WHERE {{template "claimed" .}} AND ?7 IS NOT NULL AND ?10 IS NOT NULL AND ?11 IS NOT NULL

{{- define "letter_tenant"}}{{if .Tenant}}coalesce(nullif(e.{{.Tenant}}, ''), ?11){{else}}?11{{end}}{{end}}

{{- define "origin_value"}}CASE typeof(e.{{.}}) WHEN 'blob' THEN json_object('blob', hex(e.{{.}})) ELSE e.{{.}} END{{end}}

{{- define "letter_payload" -}}
    CASE WHEN e.{{.Payload}} IS NULL THEN 'null'
            WHEN typeof(e.{{.Payload}}) = 'blob' THEN json_quote(hex(e.{{.Payload}}))
            WHEN json_valid(e.{{.Payload}}) THEN CAST(e.{{.Payload}} AS TEXT)
            ELSE json_quote(CAST(e.{{.Payload}} AS TEXT)) END
{{- end}}
