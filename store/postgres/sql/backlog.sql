-- backlog: how far behind the relay is. $1 the count stops there, because counting millions costs more than it tells.
-- Index: the partial one on the position of undelivered rows.
SELECT (SELECT count(*) FROM (SELECT FROM {{.Table}} e WHERE e.{{template "undelivered" .}} LIMIT $1) AS counted),
       (SELECT {{template "shown_written_at" .}}
          FROM {{.Table}} e WHERE e.{{template "undelivered" .}} ORDER BY e.{{.Position}} LIMIT 1),
       (SELECT e.{{.ID}} FROM {{.Table}} e WHERE e.{{template "undelivered" .}} ORDER BY e.{{.Position}} LIMIT 1),
       now()
