-- retention: whether every row of a part of a log is settled, as of every lane. $1 table, $2 part, $3 number of lanes.
-- The caller has the part locked, so that nothing is written into it meanwhile, and no row of it can be uncommitted.
-- Indexes: the end of that of positions; for rows that a lane's snapshot does not see that of transactions.
SELECT coalesce(bool_and(
           p.position IS NOT NULL AND p.late_position IS NULL
           AND (SELECT e.{{.Position}} FROM {{.Table}} e WHERE e.part = $2::smallint ORDER BY e.{{.Position}} DESC LIMIT 1) <= p.position
           AND NOT EXISTS (SELECT FROM {{.Table}} e WHERE e.part = $2::smallint AND e.{{.Transaction}} = ANY (ARRAY(SELECT pg_snapshot_xip(p.snapshot))))
           AND NOT EXISTS (SELECT FROM {{.Table}} e WHERE e.part = $2::smallint AND e.{{.Transaction}} >= pg_snapshot_xmax(p.snapshot))), false)
  FROM generate_series(0, $3::int - 1) AS l (lane)
  LEFT JOIN LATERAL ({{template "log_place"}}) p ON true
