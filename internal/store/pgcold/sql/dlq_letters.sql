{{- /*
What the statements about dead letters share; l is job_dlq. Unlike elsewhere, conditions that nobody asked for are
left out, and arg adds a value to the statement's arguments and returns its number; so does pattern, of a pattern. A page
of a long replay would otherwise be planned for any filter, that is, for none.
*/ -}}

{{define "dlq_where" -}}
    {{if .IDs}}l.id = ANY ({{arg .IDs}}::uuid[]){{else}}true{{end}}
    {{- if eq .State "pending"}} AND l.replayed_at IS NULL AND l.discarded_at IS NULL
    {{- else if eq .State "replayed"}} AND l.replayed_at IS NOT NULL
    {{- else if eq .State "discarded"}} AND l.replayed_at IS NULL AND l.discarded_at IS NOT NULL
    {{- else if eq .State "not replayed"}} AND l.replayed_at IS NULL{{end}}
    {{- with .F.Source}} AND l.source = {{arg .}}::text{{end}}
    {{- with .F.Reason}} AND l.error_reason = {{arg .}}::text{{end}}
    {{- with .F.Type}} AND l.type LIKE {{pattern .}}::text{{end}}
    {{- template "dlq_tenant" .}}
    {{- with .F.Key}} AND l.event_key = {{arg .}}::text{{end}}
    {{- with .F.RequestID}} AND l.request_id = {{arg .}}::uuid{{end}}
    {{- with .F.Table}} AND l.outbox_table = {{arg .}}::text{{end}}
    {{- with .F.Destination}} AND l.destination LIKE {{pattern .}}::text{{end}}
    {{- /* Ids are UUIDv7: the first with a time is the bound of that time. */}}
    {{- if .F.Since}} AND l.id >= {{arg .SinceID}}::uuid{{end}}
    {{- if .F.Until}} AND l.id < {{arg .UntilID}}::uuid{{end}}
    {{- with .F.Error}} AND EXISTS (SELECT FROM jsonb_array_elements(l.error_history) h WHERE strpos(lower(h->>'error'), lower({{arg .}}::text)) > 0){{end}}
    {{- with .F.Fingerprint}} AND {{template "fingerprint"}} = lower({{arg .}}::text){{end}}
{{- end}}

{{define "last_error"}}coalesce(l.error_history->-1->>'error', ''){{end}}

{{- /*
Errors that differ only in what changes from one time to the next have one fingerprint. Blanked are, in this order:
quoted text, UUIDs, hexadecimal of eight digits or more, and numbers, with a unit of time if there is one. A quote
inside a word is an apostrophe.
*/ -}}
{{define "fingerprint" -}}
    substr(encode(sha256(convert_to(
        regexp_replace(regexp_replace(regexp_replace(regexp_replace(lower({{template "last_error"}}),
            '"[^"]*"|(?<!\w)''[^'']*''|`[^`]*`', '?', 'g'),
            '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}', '?', 'g'),
            '0x[0-9a-f]+|\y(?=[a-f]*[0-9])[0-9a-f]{8,}\y', '?', 'g'),
            '([0-9]+([.][0-9]+)*((ns|us|µs|ms|s|m|h)(?![a-z]))?)+', '?', 'g'),
        'UTF8')), 'hex'), 1, 12)
{{- end}}

{{define "dlq_columns" -}}
    l.id, l.source, l.original_job_id AS original_id, coalesce((SELECT a.namespace FROM apps a WHERE a.id = l.app_id), '') AS tenant,
       CASE WHEN l.replayed_at IS NOT NULL THEN 'replayed' WHEN l.discarded_at IS NOT NULL THEN 'discarded' ELSE 'pending' END AS state,
       l.user_id, l.request_id, l.type, l.error_reason AS reason, l.attempts, {{template "last_error"}} AS last_error, {{template "fingerprint"}} AS fingerprint,
       coalesce(l.outbox_table, '') AS table, coalesce(l.destination, '') AS destination, coalesce(l.event_key, '') AS key, l.position, l.generation,
       l.replayed_at::timestamptz AS replayed_at, l.discarded_at, coalesce(l.discard_reason, '') AS discard_reason
{{- end}}

{{define "dlq_tenant"}}
    {{- with .F.Tenant}} AND l.app_id = (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{arg .}}::text) OR a.id::text = lower({{arg .}}::text)){{end}}
{{- end}}
