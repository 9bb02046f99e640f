-- dlq: writes the letters of dead rows that have none: of rows that somebody set dead by plain SQL, or that were dead
-- before a relay served their table. A row that was put back and is dead again needs another letter: its generation is
-- higher. Of one event outbox_deliveries has several rows (Owed), which their positions tell apart.
-- Locks the inserted rows; dlq_collect_turn.sql has let nobody else in. Index: that of the status where the table has
-- one, and idx_job_dlq_original_job_id. The applications exist: dlq_collect_apps.sql ran before.
INSERT INTO job_dlq (source, original_job_id, app_id, user_id, request_id, type, payload, error_reason, attempts,
                     error_history, destination, outbox_table, event_key, generation, position, tenant)
SELECT 'event', e.{{.ID}},
       {{if .App}}e.{{.App}}{{else}}(SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{template "dead_tenant" .}})){{end}},
       {{template "letter_user" .}}, {{template "letter_request" .}},
       coalesce(e.{{.Topic}}::text, ''), coalesce(e.{{.Payload}}::jsonb, 'null'), 'DeliveryFailed', greatest(e.{{.Attempts}}, 1),
       {{template "dead_history" .}}, {{if .Owed}}e.destinations->>0{{else}}NULL{{end}}, {{.TableName}}, {{if .Key}}e.{{.Key}}::text{{else}}NULL{{end}},
       {{if .Generation}}coalesce(e.{{.Generation}}, 0){{else}}0{{end}}, e.{{.Position}}, {{if .App}}NULL{{else}}{{template "dead_tenant" .}}{{end}}
  FROM {{.Table}} e
 WHERE {{template "dead_silent" .}}
 LIMIT {{arg .Limit}}

{{- define "dead_silent" -}}
    e.{{.Status}} = {{.Dead}}
   AND NOT EXISTS (SELECT FROM job_dlq l
                    WHERE l.original_job_id = e.{{.ID}} AND l.source = 'event' AND l.outbox_table = {{.TableName}}
                      {{- if .Generation}} AND l.generation >= coalesce(e.{{.Generation}}, 0){{end}}
                      {{- if .Owed}} AND l.position = e.{{.Position}}{{end}})
{{- end}}

{{- define "dead_tenant"}}
    {{- if .Tenant}}coalesce(nullif(e.{{.Tenant}}::text, ''), {{arg .DefaultTenant}}::text){{else}}{{arg .DefaultTenant}}::text{{end}}
{{- end}}

{{- define "dead_history" -}}
    {{if .ErrorHistory}}coalesce(nullif(e.{{.ErrorHistory}}::jsonb, '[]'), {{end -}}
    jsonb_build_array(jsonb_build_object(
           'error', {{if .LastError}}coalesce(e.{{.LastError}}::text, {{end}}{{if .Owed}}e.sink || ': ' || {{end}}'set dead by hand'{{if .LastError}}){{end}}, 'timestamp', now()))
    {{- if .ErrorHistory}}){{end}}
{{- end}}
