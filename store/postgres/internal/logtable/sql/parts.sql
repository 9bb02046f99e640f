-- retention: the parts of a log: their numbers, whether writers fill them, their tables where they have rows, and how
-- old the oldest and the newest row are. $1 how many. Locks nothing. Index: that of positions, an end of it each.
SELECT p.number::smallint, p.number = coalesce(pg_sequence_last_value('outbox_log_part'), 0) % $1::int,
       o.tableoid::regclass::text, now() - o.written_at, now() - n.written_at
  FROM generate_series(0, $1::int - 1) AS p (number)
  LEFT JOIN LATERAL (SELECT e.tableoid, {{template "written_at" .}} AS written_at FROM {{.Table}} e
                      WHERE e.part = p.number ORDER BY e.{{.Position}} LIMIT 1) o ON true
  LEFT JOIN LATERAL (SELECT {{template "written_at" .}} AS written_at FROM {{.Table}} e
                      WHERE e.part = p.number ORDER BY e.{{.Position}} DESC LIMIT 1) n ON true
 ORDER BY p.number
