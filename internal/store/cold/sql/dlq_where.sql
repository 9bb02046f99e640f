{{- /*
What the statements about dead letters share; l is job_dlq. Conditions that nobody asked for are left out, and arg adds
a value to the statement's arguments and returns its parameter; so does pattern, of a pattern. A page of a long replay
would otherwise be planned for any filter, that is, for none. What differs between databases is in their words.sql.
*/ -}}

{{define "dlq_where" -}}
    {{if .IDs}}l.id {{template "among" (arg .IDs)}}{{else}}true{{end}}
    {{- if eq .State "pending"}} AND l.replayed_at IS NULL AND l.discarded_at IS NULL
    {{- else if eq .State "replayed"}} AND l.replayed_at IS NOT NULL
    {{- else if eq .State "discarded"}} AND l.replayed_at IS NULL AND l.discarded_at IS NOT NULL
    {{- else if eq .State "not replayed"}} AND l.replayed_at IS NULL{{end}}
    {{- with .F.Source}} AND l.source = {{template "text" (arg .)}}{{end}}
    {{- with .F.Reason}} AND l.error_reason = {{template "text" (arg .)}}{{end}}
    {{- with .F.Type}} AND l.type {{template "like" (pattern .)}}{{end}}
    {{- with .F.Tenant}} AND {{template "is_of_tenant" (arg .)}}{{end}}
    {{- with .F.Key}} AND l.event_key = {{template "text" (arg .)}}{{end}}
    {{- with .F.RequestID}} AND l.request_id = {{template "uuid" (arg .)}}{{end}}
    {{- with .F.Table}} AND l.outbox_table = {{template "text" (arg .)}}{{end}}
    {{- with .F.Destination}} AND l.destination {{template "like" (pattern .)}}{{end}}
    {{- /* Ids are UUIDv7: the first with a time is the bound of that time. */}}
    {{- if .F.Since}} AND l.id >= {{template "uuid" (arg .SinceID)}}{{end}}
    {{- if .F.Until}} AND l.id < {{template "uuid" (arg .UntilID)}}{{end}}
    {{- with .F.UpTo}} AND l.id <= {{template "uuid" (arg .)}}{{end}}
    {{- with .F.Error}} AND {{template "some_error_has" (arg .)}}{{end}}
    {{- with .F.Fingerprint}} AND {{template "fingerprint"}} = lower({{template "text" (arg .)}}){{end}}
{{- end}}

{{define "tenant_of_letter"}}coalesce(l.tenant, (SELECT a.namespace FROM apps a WHERE a.id = l.app_id), ''){{end}}

{{define "dlq_columns" -}}
    l.id, l.source, l.original_job_id, {{template "tenant_of_letter"}},
       CASE WHEN l.replayed_at IS NOT NULL THEN 'replayed' WHEN l.discarded_at IS NOT NULL THEN 'discarded' ELSE 'pending' END,
       l.user_id, l.request_id, l.type, l.error_reason, l.attempts, {{template "last_error"}}, {{template "fingerprint"}},
       coalesce(l.outbox_table, ''), coalesce(l.destination, ''), coalesce(l.event_key, ''), l.position, l.generation,
       {{template "at" "l.replayed_at"}}, l.discarded_at, coalesce(l.discard_reason, '')
{{- end}}
