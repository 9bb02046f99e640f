{{- /* The user and the request that row e is about, where its metadata names them by a UUID. to_jsonb takes a column
of any type. */ -}}
{{define "letter_user"}}{{if .Metadata}}substring(to_jsonb(e.{{.Metadata}})->>'user_id' FROM {{template "uuid_form"}})::uuid{{else}}NULL::uuid{{end}}{{end}}
{{define "letter_request"}}{{if .Metadata}}substring(to_jsonb(e.{{.Metadata}})->>'request_id' FROM {{template "uuid_form"}})::uuid{{else}}NULL::uuid{{end}}{{end}}
{{define "uuid_form"}}'^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'{{end}}
