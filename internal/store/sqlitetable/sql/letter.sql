{{- /* The user and the request that row e is about, where its metadata names them by a UUID. */ -}}
{{define "letter_user"}}{{if .Metadata}}(SELECT lower(j.atom) {{template "uuids_of_metadata" .}} AND j.key = 'user_id'){{else}}NULL{{end}}{{end}}
{{define "letter_request"}}{{if .Metadata}}(SELECT lower(j.atom) {{template "uuids_of_metadata" .}} AND j.key = 'request_id'){{else}}NULL{{end}}{{end}}
{{define "uuids_of_metadata" -}}
    FROM json_each(CASE WHEN json_valid(e.{{.Metadata}}) THEN e.{{.Metadata}} ELSE '{}' END) j
            WHERE j.type = 'text' AND j.atom GLOB '????????-????-????-????-????????????' AND lower(j.atom) NOT GLOB '*[^-0-9a-f]*'
{{- end}}
