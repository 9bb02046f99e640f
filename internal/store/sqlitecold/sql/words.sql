{{- /* What the statements of internal/store/cold say in SQLite's words. */ -}}

{{define "among"}}IN (SELECT value FROM json_each({{.}})){{end}}
{{define "like"}}GLOB {{.}}{{end}}
{{define "text"}}{{.}}{{end}}
{{define "column_text"}}e.{{.}}{{end}}
{{define "number"}}{{.}}{{end}}
{{define "uuid"}}{{.}}{{end}}
{{define "uuid_of_text"}}lower({{.}}){{end}}
{{define "at"}}{{.}}{{end}}
{{define "now"}}{{arg .Now}}{{end}}
{{- /* A UUIDv7 is compared with the first of a moment. */ -}}
{{define "written_since"}}{{if .WrittenAt}}{{template "instant" .WrittenAt}} >= {{arg .F.Since}}{{else}}e.{{.TimeID}} >= {{arg .SinceID}}{{end}}{{end}}
{{define "written_until"}}{{if .WrittenAt}}{{template "instant" .WrittenAt}} < {{arg .F.Until}}{{else}}e.{{.TimeID}} < {{arg .UntilID}}{{end}}{{end}}
{{define "trace_is"}}CASE WHEN json_valid(e.{{.Metadata}}) THEN {{arg .F.Trace}} IN (substr(e.{{.Metadata}} ->> '$.traceparent', 4, 32), e.{{.Metadata}} ->> '$.trace_id') END{{end}}
{{define "login"}}NULL{{end}}
{{- /* Tenants whose names differ in case only share an application: it narrows down, and the letter decides. */ -}}
{{define "is_of_tenant"}}l.app_id = (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{.}})) AND {{template "tenant_of_letter"}} = {{.}}{{end}}
{{define "some_error_has"}}EXISTS (SELECT 1 FROM json_each(l.error_history) h WHERE instr(lower(l.error_history ->> (h.fullkey || '.error')), lower({{.}})) > 0){{end}}
{{define "last_error"}}coalesce(l.error_history ->> '$[#-1].error', ''){{end}}

{{- /* fingerprint.go: SQLite has no regular expressions and no hash. */ -}}
{{define "fingerprint"}}outbox_fingerprint({{template "last_error"}}){{end}}
