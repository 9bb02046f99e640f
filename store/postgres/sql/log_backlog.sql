-- backlog: how far behind the relays of a log are. $1 table, $2 the count stops there, $3 number of lanes. Late rows are
-- not counted: they are few, and soon gone. Locks nothing. Index: that of positions, from the lane on that is furthest
-- behind.
WITH place AS MATERIALIZED (
    SELECT array_agg(coalesce((SELECT p.position FROM ({{template "log_place"}}) p), 0) ORDER BY l.lane) AS positions
      FROM generate_series(0, $3::int - 1) AS l (lane)
), behind AS MATERIALIZED (
    SELECT {{template "written_at" .}} AS written_at, e.{{.ID}} AS id
      FROM {{.Table}} e
     WHERE e.{{.Position}} > (SELECT min(n) FROM place, unnest(place.positions) AS n)
       AND e.{{.Position}} > ((SELECT positions FROM place))[{{template "lane" .}} + 1]
     ORDER BY e.{{.Position}}
     LIMIT $2
)
SELECT (SELECT count(*) FROM behind), (SELECT written_at FROM behind LIMIT 1), (SELECT id FROM behind LIMIT 1), now()
