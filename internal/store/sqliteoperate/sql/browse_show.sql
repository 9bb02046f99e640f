-- browse: one row with everything about it. ?1 its event id, in the spellings that tables have, or its position; ?2
-- tenant, or ''. Locks nothing.
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
 WHERE {{if .ByPosition}}e.{{.Position}} = CAST(?1 AS INTEGER){{else}}e.{{.ID}} IN (?1, upper(?1), unhex(?1, '-')){{end}}
   {{if .Part}}AND e.{{.Part}} = {{.PartValue}}
   {{end}}AND (?2 = ''{{if .Tenant}} OR e.{{.Tenant}} = ?2{{else if .App}} OR e.{{.App}} = {{template "app_of" "?2"}}{{end}})
 LIMIT 1
