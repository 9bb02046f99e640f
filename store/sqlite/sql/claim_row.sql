{{- /*
What every claim reads of a row, in the order of claimedRow, and which undelivered rows are due: those of the lanes ?1
that wait for no retry, and whose key waits for none at ?2. The keys whose head waits come from the partial index of
waiting rows, which is nearly always empty, once a claim and without regard to the position. The columns are as they
are stored: a mapped table that is not STRICT may have anything in any of them, and what cannot be used is found in
Go, row by row. A cast only where the type that a column was declared with would make the driver take a text for a
time.
*/ -}}

{{define "claim_columns" -}}
    e.{{.ID}},
    e.{{.Position}},
    {{template "lane" .}},
    {{template "order_key" .}},
    {{if .Sequence}}coalesce(e.{{.Sequence}}, 0){{else}}e.{{.Position}}{{end}},
    coalesce(e.{{.Attempts}}, 0),
    {{if .Generation}}coalesce(e.{{.Generation}}, 0){{else}}0{{end}},
    {{if .WrittenAt}}CAST(e.{{.WrittenAt}} AS TEXT){{else if .TimeID}}e.{{.TimeID}}{{else}}NULL{{end}},
    {{if .OccurredAt}}CAST(e.{{.OccurredAt}} AS TEXT){{else}}NULL{{end}},
    e.{{.Topic}},
    {{if .AggregateType}}e.{{.AggregateType}}{{else}}NULL{{end}},
    {{if .Key}}e.{{.Key}}{{else}}NULL{{end}},
    {{if .Tenant}}e.{{.Tenant}}{{else if .App}}(SELECT a.namespace FROM apps a WHERE a.id = e.{{.App}}){{else}}NULL{{end}},
    {{if .App}}e.{{.App}}{{else}}NULL{{end}},
    {{if .Source}}e.{{.Source}}{{else}}NULL{{end}},
    {{if .SchemaID}}e.{{.SchemaID}}{{else}}NULL{{end}},
    {{if .SchemaVersion}}coalesce(e.{{.SchemaVersion}}, 1){{else}}1{{end}},
    {{if .Destinations}}e.{{.Destinations}}{{else}}NULL{{end}},
    {{if .DeliveredTo}}e.{{.DeliveredTo}}{{else}}NULL{{end}},
    {{if .Metadata}}e.{{.Metadata}}{{else}}NULL{{end}},
    coalesce(e.{{.Payload}}, 'null')
{{- end}}

{{define "due" -}}
(?1 >> {{template "lane" .}}) & 1
   AND (e.{{.NextRetryAt}} IS NULL OR {{template "retry_at" .}} <= ?2)
   {{- if or .Key .KeylessScope}}
   AND (NOT {{template "ordered" .}} OR {{template "order_key" .}} NOT IN (
           SELECT {{template "order_key" .}}
             FROM {{.Table}} AS e{{with .Waiting}} INDEXED BY {{.}}{{end}}
            WHERE {{if not .OneForm}}e.{{.NextRetryAt}} IS NOT NULL AND {{end}}{{template "retry_at" .}} > ?2
              AND e.{{template "undelivered" .}}
              AND {{template "ordered" .}}))
   {{- end}}
{{- end}}
