-- claim: the positions and lanes of undelivered rows, in order. Ends with an error at a row whose key cannot be read,
-- which is how its position is found. Locks nothing. Index: the partial one on the position of undelivered rows.
SELECT e.{{.Position}}::bigint, {{template "lane" .}}
  FROM (SELECT e.* FROM {{.Table}} e WHERE e.{{template "undelivered" .}} ORDER BY e.{{.Position}} OFFSET 0) e
