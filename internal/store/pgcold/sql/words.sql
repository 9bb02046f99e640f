{{- /* What the statements of internal/store/cold say in PostgreSQL's words. */ -}}

{{define "among"}}= ANY ({{.}}::uuid[]){{end}}
{{define "like"}}LIKE {{.}}::text{{end}}
{{define "text"}}{{.}}::text{{end}}
{{define "column_text"}}e.{{.}}::text{{end}}
{{define "number"}}{{.}}::int{{end}}
{{define "uuid"}}{{.}}::uuid{{end}}
{{define "uuid_of_text"}}{{.}}::text::uuid{{end}}
{{define "at"}}{{.}}::timestamptz{{end}}
{{define "now"}}now(){{end}}
{{define "written_since"}}{{template "written_at" .}} >= {{arg .F.Since}}::timestamptz{{end}}
{{define "written_until"}}{{template "written_at" .}} < {{arg .F.Until}}::timestamptz{{end}}
{{define "trace_is"}}{{arg .F.Trace}}::text IN (substr(e.{{.Metadata}}::jsonb ->> 'traceparent', 4, 32), e.{{.Metadata}}::jsonb ->> 'trace_id'){{end}}
{{define "login"}}u.db_user{{end}}
{{- /* The application of a tenant; the dot is the parameter. lower() is for the index. */ -}}
{{define "app_of"}}(SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{.}}::text) AND a.namespace = {{.}}::text){{end}}
{{- /* Tenants whose names differ in case only share an application: it narrows down, and the letter decides. */ -}}
{{define "is_of_tenant"}}l.app_id = (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{.}}::text)) AND {{template "tenant_of_letter"}} = {{.}}::text{{end}}
{{define "some_error_has"}}EXISTS (SELECT FROM jsonb_array_elements(l.error_history) h WHERE strpos(lower(h->>'error'), lower({{.}}::text)) > 0){{end}}
{{define "last_error"}}coalesce(l.error_history->-1->>'error', ''){{end}}

{{- /*
Errors that differ only in what changes from one time to the next have one fingerprint. Blanked are, in this order:
quoted text, UUIDs, hexadecimal of eight digits or more, and numbers, with a unit of time if there is one. A quote
inside a word is an apostrophe. [^ -~] is the Greek letter of microseconds: SQL is ASCII.
*/ -}}
{{define "fingerprint" -}}
    substr(encode(sha256(convert_to(
        regexp_replace(regexp_replace(regexp_replace(regexp_replace(lower({{template "last_error"}}),
            '"[^"]*"|(?<!\w)''[^'']*''|`[^`]*`', '?', 'g'),
            '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}', '?', 'g'),
            '0x[0-9a-f]+|\y(?=[a-f]*[0-9])[0-9a-f]{8,}\y', '?', 'g'),
            '([0-9]+([.][0-9]+)*((ns|us|[^ -~]{1,2}s|ms|s|m|h)(?![a-z]))?)+', '?', 'g'),
        'UTF8')), 'hex'), 1, 12)
{{- end}}
