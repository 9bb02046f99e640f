-- lanes: whose the oldest undelivered rows are, by topic or tenant, the largest share first; the first of each, and
-- how many rows and shares there are. Measured as lanes_backlog.sql. Locks nothing. Index: the partial one on the
-- position of undelivered rows.
WITH {{if .Transaction}}{{template "log_behind" .}}, oldest AS (
    SELECT position, id, written, {{if .ByTopic}}topic{{else}}tenant{{end}} AS value FROM behind
){{else}}oldest AS MATERIALIZED (
    SELECT e.{{.Position}} AS position, e.{{.ID}} AS id, {{template "shown_written_at" .}} AS written,
           {{if .ByTopic}}e.{{.Topic}}::text{{else}}{{template "shown_tenant" .}}{{end}} AS value
      FROM {{.Table}} e
     WHERE e.{{template "undelivered" .}}
     ORDER BY e.{{.Position}}
     LIMIT {{arg .Count}}
){{end}}
SELECT value, count(*)::int, (array_agg(written ORDER BY position))[1], (array_agg(id ORDER BY position))[1], now(),
       (SELECT count(*) FROM oldest)::int, (count(*) OVER ())::int
  FROM oldest
 GROUP BY value
 ORDER BY count(*) DESC, value
 LIMIT {{arg .Shares}}
