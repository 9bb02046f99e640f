-- backlog: how far behind the relays of a log are. $1 table, $2 the count stops there, $3 number of lanes. Late rows
-- are not counted: they are few, and soon gone. Locks nothing.
-- A row behind the lane that is furthest is undelivered whatever its lane. So what a log has gathered is counted in the
-- index, and the lanes are computed of the rows between the first lane and the last one alone: a fifth of the time for
-- 100,000 rows.
-- Index: that of positions.
WITH {{template "log_places" .}}, oldest AS MATERIALIZED (
    SELECT e.{{.ID}} AS id, {{template "shown_written_at" .}} AS written
      FROM {{.Table}} e
     WHERE e.{{.Position}} > (SELECT lowest FROM place)
       AND {{template "log_unread" .}}
     ORDER BY e.{{.Position}}
     LIMIT 1
)
SELECT least($2::bigint,
             (SELECT count(*) FROM (SELECT FROM {{.Table}} e
                                     WHERE e.{{.Position}} > (SELECT lowest FROM place)
                                       AND e.{{.Position}} <= (SELECT highest FROM place)
                                       AND {{template "log_unread" .}}
                                     LIMIT $2) AS between_lanes)
             + (SELECT count(*) FROM (SELECT FROM {{.Table}} e
                                       WHERE e.{{.Position}} > (SELECT highest FROM place)
                                       LIMIT $2) AS behind_all)),
       (SELECT written FROM oldest), (SELECT id FROM oldest), now()
