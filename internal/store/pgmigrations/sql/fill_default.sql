-- adopt: gives the next rows a column's default. $1 id to begin at, $2 rows; $3 is not used. Rows written since the
-- column is there have it. Index: the primary key.
WITH todo AS MATERIALIZED (
    SELECT id FROM {{.Table}}
     WHERE {{.Column}} IS NULL AND id >= $1::text::{{.CursorType}}
     ORDER BY id LIMIT $2
       FOR NO KEY UPDATE NOWAIT
), filled AS (
    UPDATE {{.Table}} t SET {{.Column}} = DEFAULT FROM todo WHERE t.id = todo.id RETURNING 1
)
SELECT (SELECT count(*) FROM filled), $3::bigint, coalesce((SELECT id FROM todo ORDER BY id DESC LIMIT 1)::text, $1::text)
