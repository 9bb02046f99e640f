-- backlog: how far behind the relay is. ?1 the count stops there, because counting millions costs more than it tells.
-- Locks nothing.
-- Index: the partial one on the position of undelivered rows, by its name as in claim.sql.
SELECT (SELECT count(*) FROM (SELECT 1 FROM {{.Table}} AS e{{with .Undelivered}} INDEXED BY {{.}}{{end}} WHERE e.{{template "undelivered" .}} LIMIT coalesce(?1, NULL))),
       (SELECT {{if .WrittenAt}}CAST(e.{{.WrittenAt}} AS TEXT){{else}}NULL{{end}}
          FROM {{.Table}} AS e{{with .Undelivered}} INDEXED BY {{.}}{{end}} WHERE e.{{template "undelivered" .}} ORDER BY e.{{.Position}} LIMIT 1),
       (SELECT e.{{or .TimeID .ID}} FROM {{.Table}} AS e{{with .Undelivered}} INDEXED BY {{.}}{{end}} WHERE e.{{template "undelivered" .}} ORDER BY e.{{.Position}} LIMIT 1)
