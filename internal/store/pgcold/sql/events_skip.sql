-- events: the oldest undelivered ones that are chosen, for settle_dead.sql, which is next.
-- Locks the rows, in the order in which a relay settles them; what a relay settles first is not among them any more.
-- Index: that of undelivered positions.
SELECT e.{{.Position}}::bigint, e.{{.ID}}, {{if .Generation}}coalesce(e.{{.Generation}}, 0)::int{{else}}0{{end}}, least(coalesce(e.{{.Attempts}}, 0), 2147483647)::int,
       {{if .Tenant}}coalesce(e.{{.Tenant}}::text, ''){{else}}''{{end}}
  FROM {{.Table}} e
 WHERE e.{{template "undelivered" .}}{{template "events_selected" .}}
 ORDER BY e.{{.Position}}
 LIMIT {{arg .Limit}}
   FOR {{if .DeleteDead}}UPDATE{{else}}NO KEY UPDATE{{end}}
