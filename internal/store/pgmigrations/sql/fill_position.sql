-- adopt: numbers the next rows, oldest first. $1 where to begin, $2 rows, $3 last number given out.
-- Rows written since the column is there have a number, above all of these. Index: {{.Table}}_adopt, or the primary
-- key.
WITH todo AS MATERIALIZED (
    SELECT id{{if .Time}}, created_at{{end}}
      FROM {{.Table}}
     WHERE {{.Column}} IS NULL AND {{.Cursor}} >= $1::text::{{.CursorType}}
     ORDER BY {{if .Time}}created_at, {{end}}id
     LIMIT $2
       FOR NO KEY UPDATE NOWAIT
), numbered AS (
    SELECT id, $3::bigint + row_number() OVER (ORDER BY {{if .Time}}created_at, {{end}}id) AS n FROM todo
), filled AS (
    UPDATE {{.Table}} t SET {{.Column}} = numbered.n FROM numbered WHERE t.id = numbered.id RETURNING numbered.n
)
SELECT (SELECT count(*) FROM filled), (SELECT coalesce(max(n), $3) FROM filled),
       coalesce((SELECT {{.Cursor}} FROM todo ORDER BY {{.Cursor}} DESC LIMIT 1)::text, $1::text)
