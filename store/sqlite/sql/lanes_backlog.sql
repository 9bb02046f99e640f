-- lanes: how many undelivered rows each lane has among the oldest ?1, and which is its first: with min(), SQLite takes the other columns from the row that has it.
-- Locks nothing. Index: the partial one on the position of undelivered rows.
SELECT lane, count(*), min(position), written, id
  FROM (SELECT {{template "lane" .}} AS lane, e.{{.Position}} AS position, e.{{or .TimeID .ID}} AS id,
               {{if .WrittenAt}}CAST(e.{{.WrittenAt}} AS TEXT){{else}}NULL{{end}} AS written
          FROM {{.Table}} AS e
         WHERE e.{{template "undelivered" .}}
         ORDER BY e.{{.Position}}
         LIMIT ?1)
 GROUP BY lane
