{{- /* The user and the request that row e is about, where its metadata names them by a UUID. to_jsonb takes a column
of any type. */ -}}
{{define "letter_user"}}{{if .Metadata}}substring(to_jsonb(e.{{.Metadata}})->>'user_id' FROM {{template "uuid_form"}})::uuid{{else}}NULL::uuid{{end}}{{end}}
{{define "letter_request"}}{{if .Metadata}}substring(to_jsonb(e.{{.Metadata}})->>'request_id' FROM {{template "uuid_form"}})::uuid{{else}}NULL::uuid{{end}}{{end}}
{{define "uuid_form"}}'^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'{{end}}

{{- /* What a letter holds of row e if the full letter was refused: see settle_dead.sql. A topic of more than 200
characters may exceed what an index takes. */ -}}
{{define "letter_reduced" -}}
    {{if .Bare}}''{{else}}coalesce(left(e.{{.Topic}}::text, 200), ''){{end}} AS topic,
              {{if .NoPayload}}'null'::jsonb{{else}}coalesce(to_jsonb(e.{{.Payload}}::text), 'null'){{end}} AS payload,
              {{if and .Key (not .Bare)}}e.{{.Key}}::text{{else}}NULL::text{{end}} AS key,
              NULL::uuid AS user_id, NULL::uuid AS request_id
{{- end}}
{{- /* Where the row leaves its table: its text, which cannot be put back. A replay is refused. */ -}}
{{define "letter_origin"}}{{if .NoPayload}}'{}'::jsonb{{else}}jsonb_build_object('row', row_to_json(e)::text){{end}}{{end}}
