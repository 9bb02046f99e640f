-- retention: removes rows that were found, if they are still due. Positions, and of letters ids, are a
-- JSON array. In a write transaction in which the caller holds the table's maintenance. Index: the
-- position's, or job_dlq's primary key.
DELETE FROM {{.Table}} AS e WHERE {{template "found_rows" .}}

{{- define "found_rows"}}e.{{or .Position .ID}} IN (SELECT value FROM json_each({{arg .Places}})) AND {{template "removable" .}}{{end}}

{{- define "retention_position"}}{{if .Position}}e.{{.Position}}{{else}}0{{end}}{{end}}

{{- /* Every column by its name; what is JSON as JSON, and bytes as their hexadecimal digits, as PostgreSQL spells
them. */ -}}
{{define "whole_row" -}}
    json_object({{range $i, $c := .Columns}}{{if $i}}, {{end}}{{$c.Text}}, {{template "archived_value" $c}}{{end}})
{{- end}}

{{define "archived_value" -}}
    {{if .JSON}}CASE WHEN json_valid(e.{{.Name}}) THEN json(e.{{.Name}}) ELSE e.{{.Name}} END
    {{- else}}CASE typeof(e.{{.Name}}) WHEN 'blob' THEN '\x' || lower(hex(e.{{.Name}})) ELSE e.{{.Name}} END{{end}}
{{- end}}

{{define "archived_id"}}CASE typeof(e.{{.ID}}) WHEN 'blob' THEN lower(hex(e.{{.ID}})) ELSE e.{{.ID}} END{{end}}
