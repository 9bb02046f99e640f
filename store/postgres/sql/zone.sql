-- zone: the zone of times in columns without one, as `outbox migrate up` recorded it (docs/adr/0018), or ''. Locks
-- nothing.
SELECT coalesce({{template "recorded_zone"}}, '')

{{- define "recorded_zone" -}}
    substring(obj_description(to_regclass('outbox_lanes'), 'pg_class') FROM 'without a zone are in ([A-Za-z0-9_+/-]+)')
{{- end}}
