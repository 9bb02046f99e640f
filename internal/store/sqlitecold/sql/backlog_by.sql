-- lanes: whose the oldest undelivered rows are, by topic or tenant, the largest share first; the first of each, and
-- how many rows and shares there are. With min(), SQLite takes the other columns from the row that has it. Locks
-- nothing. Index: the partial one on the position of undelivered rows.
WITH oldest AS MATERIALIZED (
    SELECT e.{{.Position}} AS position, e.{{or .TimeID .ID}} AS id,
           {{if .WrittenAt}}CAST(e.{{.WrittenAt}} AS TEXT){{else}}NULL{{end}} AS written,
           {{if .ByTopic}}e.{{.Topic}}{{else}}{{template "browse_tenant" .}}{{end}} AS value
      FROM {{.Table}} AS e
     WHERE e.{{template "undelivered" .}}
     ORDER BY e.{{.Position}}
     LIMIT {{arg .Count}}
), share AS (
    SELECT value, count(*) AS waiting, min(position), written, id FROM oldest GROUP BY value
)
SELECT value, waiting, written, id, {{arg .Now}}, (SELECT count(*) FROM oldest), (SELECT count(*) FROM share)
  FROM share
 ORDER BY waiting DESC, value
 LIMIT {{arg .Shares}}
