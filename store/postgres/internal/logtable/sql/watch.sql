-- watch: whether a log has something that is not settled, as of some lane's position. As the watch.sql of other tables:
-- $1 and $2 names, $3 which are busy, of this table the {{.Number}}th. Locks nothing. Indexes: the primary key of the
-- positions, from the furthest down to the one with which all lanes are told, mostly two; then that of the log's
-- positions and, for late rows, that of transactions.
SELECT {{.Number}},
       ($3::bool[])[{{.Number}}] OR
    (WITH RECURSIVE walk (position, id, lanes, snapshot, late_position) AS (
        (SELECT p.position, p.id, p.lanes, p.snapshot, p.late_position
           FROM outbox_log_positions p
          WHERE p.table_name = ($1::text[])[{{.Number}}]
          ORDER BY p.position DESC, p.id DESC
          LIMIT 1)
        UNION ALL
        SELECT n.position, n.id, w.lanes | n.lanes, n.snapshot, n.late_position
          FROM walk w
         CROSS JOIN LATERAL (
               SELECT p.position, p.id, p.lanes, p.snapshot, p.late_position
                 FROM outbox_log_positions p
                WHERE p.table_name = ($1::text[])[{{.Number}}] AND (p.position, p.id) < (w.position, w.id)
                ORDER BY p.position DESC, p.id DESC
                LIMIT 1) n
         WHERE w.lanes <> -1
    ), least AS (
        SELECT position, snapshot, late_position FROM walk WHERE lanes = -1
    )
    SELECT coalesce((SELECT late_position IS NOT NULL
                            OR (SELECT true FROM {{.Table}} e WHERE e.{{.Position}} > least.position ORDER BY e.{{.Position}} LIMIT 1) IS NOT NULL
                            OR (SELECT true FROM {{.Table}} e WHERE e.{{.Transaction}} = ANY (ARRAY(SELECT pg_snapshot_xip(least.snapshot))) LIMIT 1) IS NOT NULL
                            OR (SELECT true FROM {{.Table}} e WHERE e.{{.Transaction}} >= pg_snapshot_xmax(least.snapshot) LIMIT 1) IS NOT NULL
                       FROM least),
                    (SELECT true FROM {{.Table}} e ORDER BY e.{{.Position}} LIMIT 1) IS NOT NULL)),
       {{- template "watched_leases" .}}
