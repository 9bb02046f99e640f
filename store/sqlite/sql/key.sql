{{- /*
What orders a table's rows: the key with its scope, and the lane. Rows without a key spread over the lanes by id. SQLite has no hash function, and one of Go's would leave writers
and tools in other languages outside; so the lane is a sum over the length and the last characters, which in ids, numbers and names are those that differ.
Lanes divide the work of several relays and order nothing by themselves: two keys in one lane do not wait for each other. U+001F keeps ('ab', 'c') and ('a', 'bc') apart.
*/ -}}

{{define "lane" -}}
    {{- if .Key -}} (CASE WHEN e.{{.Key}} IS NULL THEN {{template "lane_of_id" .}} ELSE {{template "lane_of_key" .}} END)
    {{- else -}} {{template "lane_of_id" .}}
    {{- end -}}
{{- end}}

{{define "lane_of_key" -}}
    ((length(e.{{.Key}}) * 7
      + coalesce(unicode(substr(e.{{.Key}}, -1, 1)), 0) * 1 + coalesce(unicode(substr(e.{{.Key}}, -2, 1)), 0) * 11
      + coalesce(unicode(substr(e.{{.Key}}, -3, 1)), 0) * 37 + coalesce(unicode(substr(e.{{.Key}}, -4, 1)), 0) * 59) & 63)
{{- end}}

{{define "lane_of_id" -}}
    ((unicode(substr(e.{{.ID}}, -1, 1)) + unicode(substr(e.{{.ID}}, -2, 1)) * 11 + unicode(substr(e.{{.ID}}, -3, 1)) * 37 + unicode(substr(e.{{.ID}}, -4, 1)) * 59) & 63)
{{- end}}

{{define "key_text" -}}
    {{- range .KeyScope}}coalesce(e.{{.}}, '') || char(31) || {{end}}e.{{.Key}}
{{- end}}

{{define "undelivered" -}}
    {{- if .Status -}}
        {{.Status}} IN ({{.Pending}}{{if ne .Retrying .Pending}}, {{.Retrying}}{{end}})
    {{- else -}}
        {{.DeliveredAt}} IS NULL
    {{- end -}}
{{- end}}
