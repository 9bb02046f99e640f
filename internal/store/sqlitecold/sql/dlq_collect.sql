-- dlq: writes the letters of dead rows that have none: of rows that somebody set dead by plain SQL, or that were dead
-- before a relay served their table. A row that was put back and is dead again needs another letter: its generation is
-- higher. Of one event outbox_deliveries has several rows (Owed), which their positions tell apart.
-- The applications exist: dlq_collect_apps.sql ran before. Index: idx_job_dlq_original_job_id; the table itself is
-- read, of which no index has the dead rows.
INSERT INTO job_dlq (source, original_job_id, app_id, user_id, request_id, type, payload, error_reason, attempts,
                     error_history, destination, outbox_table, event_key, generation, position, tenant)
SELECT 'event', {{template "dead_id" .}},
       {{if .App}}e.{{.App}}{{else}}(SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{template "dead_tenant" .}})){{end}},
       {{template "letter_user" .}}, {{template "letter_request" .}},
       coalesce(CAST(e.{{.Topic}} AS TEXT), ''), {{template "letter_payload" .}}, 'DeliveryFailed', max(coalesce(e.{{.Attempts}}, 0), 1),
       {{template "dead_history" .}}, {{if .Owed}}e.destinations->>0{{else}}NULL{{end}}, {{.TableName}}, {{if .Key}}CAST(e.{{.Key}} AS TEXT){{else}}NULL{{end}},
       {{template "row_generation" .}}, e.{{.Position}}, {{if .App}}NULL{{else}}{{template "dead_tenant" .}}{{end}}
  FROM {{.Table}} AS e
 WHERE {{template "dead_silent" .}}
 LIMIT {{arg .Limit}}

{{- define "dead_silent" -}}
    e.{{.Status}} = {{.Dead}}
   AND NOT EXISTS (SELECT 1 FROM job_dlq l
                    WHERE l.original_job_id = {{template "dead_id" .}} AND l.source = 'event'
                      AND l.outbox_table = {{.TableName}} AND l.generation >= {{template "row_generation" .}}
                      {{- if .Owed}} AND l.position = e.{{.Position}}{{end}})
{{- end}}

{{- define "dead_tenant"}}
    {{- if .Tenant}}coalesce(nullif(e.{{.Tenant}}, ''), {{arg .DefaultTenant}}){{else}}{{arg .DefaultTenant}}{{end}}
{{- end}}

{{- define "dead_history" -}}
    CASE WHEN {{template "history" .}} <> '[]' THEN {{template "history" .}}
            ELSE json_array(json_object('error', {{if .LastError}}coalesce(e.{{.LastError}}, {{end}}{{if .Owed}}e.sink || ': ' || {{end}}'set dead by hand'{{if .LastError}}){{end}},
                                        'timestamp', {{arg .Now}})) END
{{- end}}

{{- /* The id as letters have it. */ -}}
{{- define "dead_id"}}lower(e.{{.ID}}){{end}}
