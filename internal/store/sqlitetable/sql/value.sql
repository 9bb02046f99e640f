{{- /* A time that compares as a text does. Our tables check its form; in a mapped one plain SQL may have written
another of SQLite's, such as datetime('now', '+1 hour'), which has a blank for the T and would be due at once. What is
no time is due: nobody else would ever look at it. */ -}}
{{define "retry_at"}}
    {{- if .OneForm}}e.{{.NextRetryAt}}
    {{- else}}coalesce({{template "instant" .NextRetryAt}}, ''){{end}}
{{- end}}

{{- /* A time in the form that can be compared: plain SQL may have written it in another of SQLite's. What is no time
is NULL, and never old. strftime() rounds to milliseconds: not what has microseconds, which could come to be later. */ -}}
{{define "instant"}}iif(e.{{.}} GLOB '????-??-??T??:??:??.??????Z', e.{{.}}, strftime('%Y-%m-%dT%H:%M:%f000Z', e.{{.}})){{end}}

{{- define "history"}}{{if .ErrorHistory}}CASE WHEN json_valid(e.{{.ErrorHistory}}) AND json_type(e.{{.ErrorHistory}}) = 'array' THEN e.{{.ErrorHistory}} ELSE '[]' END{{else}}'[]'{{end}}{{end}}

{{- /* The application of a tenant; the dot is the parameter. lower() is for the index. */ -}}
{{define "app_of"}}(SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{.}}) AND a.namespace = {{.}}){{end}}
