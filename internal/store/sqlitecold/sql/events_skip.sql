-- events: the oldest undelivered ones that are chosen, for settle_letter.sql and settle_dead.sql, which are next, in
-- the same write transaction. Conditions that nobody asked for are left out. Index: that of undelivered positions.
SELECT e.{{.Position}}, e.{{.ID}}, {{template "row_generation" .}}, coalesce(e.{{.Attempts}}, 0), {{if .Tenant}}e.{{.Tenant}}{{else}}NULL{{end}}
  FROM {{.Table}} AS e
 WHERE e.{{template "undelivered" .}}{{template "events_selected" .}}
 ORDER BY e.{{.Position}}
 LIMIT {{arg .Limit}}
