{{- /*
What orders a table's rows: the key with its scope, and the lane. Rows without a key are one sequence per value of
KeylessScope, as if that value were their key. Without KeylessScope they have no order and spread over the lanes by id.
SQLite has no hash function, and one of Go's would leave writers and tools in other
languages outside; so the lane is a sum over the length and the last characters, which in ids, numbers and names are
those that differ. Lanes divide the work of several relays and order nothing by themselves: two keys in one lane do
not wait for each other. U+001F keeps ('ab', 'c') and ('a', 'bc') apart.
*/ -}}

{{- /* What a sink owes has the lane of its event, so that a sink that remembers by lanes knows it again. */ -}}
{{define "lane" -}}
    {{- if .Part -}} e.lane
    {{- else if .Key -}} (CASE WHEN e.{{.Key}} IS NULL THEN {{template "lane_of_id" .}} ELSE {{template "lane_of_key" .}} END)
    {{- else -}} {{template "lane_of_id" .}}
    {{- end -}}
{{- end}}

{{define "lane_of_key" -}}
    ((length(e.{{.Key}}) * 7
      + coalesce(unicode(substr(e.{{.Key}}, -1, 1)), 0) * 1 + coalesce(unicode(substr(e.{{.Key}}, -2, 1)), 0) * 11
      + coalesce(unicode(substr(e.{{.Key}}, -3, 1)), 0) * 37 + coalesce(unicode(substr(e.{{.Key}}, -4, 1)), 0) * 59) & 63)
{{- end}}

{{define "lane_of_id" -}}
    ((coalesce(unicode(substr(e.{{or .KeylessScope .ID}}, -1, 1)), 0) + coalesce(unicode(substr(e.{{or .KeylessScope .ID}}, -2, 1)), 0) * 11
      + coalesce(unicode(substr(e.{{or .KeylessScope .ID}}, -3, 1)), 0) * 37 + coalesce(unicode(substr(e.{{or .KeylessScope .ID}}, -4, 1)), 0) * 59) & 63)
{{- end}}

{{define "key_text" -}}
    {{- range .KeyScope}}coalesce(e.{{.}}, '') || char(31) || {{end}}e.{{.Key}}
{{- end}}

{{define "order_key" -}}
    {{- if and .Key .KeylessScope}}coalesce({{template "key_text" .}}, char(31) || coalesce(e.{{.KeylessScope}}, ''))
    {{- else if .Key}}{{template "key_text" .}}
    {{- else if .KeylessScope}}char(31) || coalesce(e.{{.KeylessScope}}, '')
    {{- else}}NULL
    {{- end -}}
{{- end}}

{{- /* Whether a row has an order_key. */ -}}
{{define "ordered" -}}
    {{- if .KeylessScope}}true{{else if .Key}}e.{{.Key}} IS NOT NULL{{else}}false{{end -}}
{{- end}}

{{- /* As the partial indexes have it: to SQLite a list of one value is not the same as an equality. */ -}}
{{define "undelivered" -}}
    {{- if .Status -}}
        {{.Status}} {{if eq .Retrying .Pending}}= {{.Pending}}{{else}}IN ({{.Pending}}, {{.Retrying}}){{end}}
    {{- else -}}
        {{.DeliveredAt}} IS NULL
    {{- end -}}
    {{- if .Part}} AND e.{{.Part}} = {{.PartValue}}{{end -}}
{{- end}}

{{- /* The row at position ?1, if it is still the one that was claimed: of the id ?2 and the generation ?3. A mapped
table may have ids in another form (16 bytes, upper case, no UUID at all): for them the position has to do. It is
unique, and the id is there for tables whose last position is given again once its row is deleted. */ -}}
{{define "claimed" -}}
    e.{{.Position}} = ?1 AND {{template "same_id" .}}
   AND {{template "row_generation" .}} = ?3
   AND e.{{template "undelivered" .}}
{{- end}}

{{define "same_id" -}}
    (e.{{.ID}} = ?2 OR typeof(e.{{.ID}}) <> 'text'
        OR e.{{.ID}} NOT GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]')
{{- end}}

{{- /* As the claim has it, in a mapped table too. */ -}}
{{define "row_generation" -}}
    {{if .Generation}}CASE WHEN typeof(e.{{.Generation}}) = 'integer' AND e.{{.Generation}} BETWEEN 0 AND 2147483647 THEN e.{{.Generation}} ELSE 0 END{{else}}0{{end}}
{{- end}}
