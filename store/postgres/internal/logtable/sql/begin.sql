-- group: notes where a reader of a log begins, unless it has a place. $1 the reader, $2 at what was written then or
-- later, NULL: at what is written from now on. Locks nothing. Two of one name that begin at once note two places, of
-- which the furthest counts. Index: that of positions, from the oldest row on for a time.
INSERT INTO outbox_log_positions (table_name, lanes, position, snapshot)
SELECT $1, -1,
       coalesce((SELECT e.{{.Position}} - 1 FROM {{.Table}} e WHERE {{template "written_at" .}} >= $2::timestamptz ORDER BY e.{{.Position}} LIMIT 1),
                (SELECT e.{{.Position}} FROM {{.Table}} e ORDER BY e.{{.Position}} DESC LIMIT 1),
                0),
       pg_current_snapshot()
 WHERE NOT EXISTS (SELECT FROM outbox_log_positions p WHERE p.table_name = $1)
