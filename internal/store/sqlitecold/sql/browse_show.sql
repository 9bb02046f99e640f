-- browse: one row with everything about it. An event id is found in the spellings that tables have. Locks nothing.
-- Index: that of the column; crawl_outbox and tables of others may have none on the event id.
SELECT {{template "browse_columns" .}},
       {{if .OccurredAt}}CAST(e.{{.OccurredAt}} AS TEXT){{else}}NULL{{end}},
       {{if .SchemaID}}e.{{.SchemaID}}{{else}}NULL{{end}},
       {{if .SchemaVersion}}e.{{.SchemaVersion}}{{else}}NULL{{end}},
       {{template "lane" .}},
       {{if .Sequence}}e.{{.Sequence}}{{else}}NULL{{end}},
       {{if .Generation}}coalesce(e.{{.Generation}}, 0){{else}}0{{end}},
       {{if .DeliveredTo}}e.{{.DeliveredTo}}{{else}}NULL{{end}},
       {{if .ErrorHistory}}e.{{.ErrorHistory}}{{else}}NULL{{end}},
       {{if .Metadata}}e.{{.Metadata}}{{else}}NULL{{end}},
       e.{{.Payload}}
  FROM {{.Table}} AS e
 WHERE {{if .ByPosition}}e.{{.Position}} = CAST({{arg .Asked}} AS INTEGER){{else}}e.{{.ID}} IN ({{arg .Asked}}, upper({{arg .Asked}}), unhex({{arg .Asked}}, '-')){{end}}
       {{- if .Part}} AND e.{{.Part}} = {{.PartValue}}{{end}}
       {{- with .F.Tenant}} AND {{if $.Tenant}}e.{{$.Tenant}} = {{arg .}}{{else}}e.{{$.App}} = {{template "app_of" (arg .)}}{{end}}{{end}}
 LIMIT 1
