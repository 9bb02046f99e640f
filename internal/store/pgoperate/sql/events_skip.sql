-- events: the oldest undelivered ones that are chosen, for settle_dead.sql, which is next. $1 ids, $2 tenant, $3 key,
-- $4 topic; NULL for no such condition; $5 limit.
-- Locks the rows, in the order in which a relay settles them; what a relay settles first is not among them any more.
-- Index: that of undelivered positions.
SELECT e.{{.Position}}::bigint, e.{{.ID}}, {{if .Generation}}coalesce(e.{{.Generation}}, 0)::int{{else}}0{{end}}, coalesce(e.{{.Attempts}}, 0)::int,
       {{if .Tenant}}coalesce(e.{{.Tenant}}::text, ''){{else}}''{{end}}
  FROM {{.Table}} e
 WHERE e.{{template "undelivered" .}}
   AND {{template "events_selected" .}}
 ORDER BY e.{{.Position}}
 LIMIT $5
   FOR {{if .DeleteDead}}UPDATE{{else}}NO KEY UPDATE{{end}}
