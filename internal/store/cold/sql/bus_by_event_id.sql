-- bus: one event, whatever its status. Index: that of event_id.
SELECT {{template "bus_columns"}}
  FROM event_outbox
 WHERE event_id = {{arg .EventID}}{{with .App}} AND app_id = {{arg .}}{{end}}

{{- define "bus_columns" -}}
    id, app_id, event_id, event_type, {{template "text" "payload"}}, coalesce(event_key, ''), status, {{template "at" "published_at"}}
{{- end}}
