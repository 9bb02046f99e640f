{{- /* The rows to settle; n is where in the arrays. OFFSET 0 and ORDER BY are what makes it an index scan in that
order, whatever the statistics say. With Unheld, which an operator's skip is, nobody's lease is asked for: the rows
are locked already. With Passing, rows that somebody else holds locked are not among them. It is not the usual form,
because it writes the lock of every row before it writes the row. */ -}}
{{define "found" -}}
    SELECT e.ctid AS at, e.tableoid AS part, width_bucket(e.{{.Position}}::bigint, $5::bigint[]) AS n
          FROM {{.Table}} e
         WHERE e.{{.Position}} = ANY ($5::bigint[])
           AND {{template "claimed" .}}
           AND e.{{template "undelivered" .}}
         ORDER BY e.{{.Position}}
        OFFSET 0
         {{- if .Passing}} FOR {{if or .DeleteDead .DeleteDelivered}}UPDATE{{else}}NO KEY UPDATE{{end}} SKIP LOCKED{{end}}
{{- end}}

{{- /* Row e is the one of the batch at its position, in the same generation, and its lane is held. */ -}}
{{define "claimed" -}}
    e.{{.ID}} = ($6::uuid[])[width_bucket(e.{{.Position}}::bigint, $5::bigint[])]
           AND {{if .Generation}}coalesce(e.{{.Generation}}, 0) = ($7::int[])[width_bucket(e.{{.Position}}::bigint, $5::bigint[])]
               {{- else}}($7::int[] IS NULL OR true){{end}}
           {{- if not .Unheld}}
           AND {{template "lane" .}} = ANY (ARRAY(SELECT lane FROM held))
           {{- end}}
{{- end}}

{{- /* The rows to settle that still stand where the claim has read them: $8 places (tids). No index is looked into. What
stands at a place is compared in full, because another row may have come there. IS TRUE keeps the planner from the
indexes of undelivered rows, one of which it would read as a whole. */ -}}
{{define "placed" -}}
    e.ctid = ANY ($8::tid[])
   AND e.{{.Position}} = ($5::bigint[])[width_bucket(e.{{.Position}}::bigint, $5::bigint[])]
   AND {{template "claimed" .}}
   AND (e.{{template "undelivered" .}}) IS TRUE
{{- end}}

{{- /* "undelivered" again, for a row that somebody has settled since it was found. */ -}}
{{define "same_row" -}}
    e.ctid = o.at AND e.tableoid = o.part AND e.{{template "undelivered" .}}
{{- end}}
