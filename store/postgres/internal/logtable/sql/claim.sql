-- claim: what a log has for some lanes behind a position and, before that, what has become visible in front of it. $1
-- lanes, $2 limit (of each kind), $3 the position, $4 no further than this one; the snapshot of the position: $5 the
-- transactions in progress, $6 the first that it knows nothing of. In a pass over late rows: $7 beyond this position,
-- $8 the snapshot whose rows it looks for, and then nothing is behind the position. Locks and writes nothing.
-- First comes a row without an id: the position of the newest row, the era (as the topic), and the snapshot in which
-- all of this was read. One statement has one snapshot for all of its parts. Late rows are those that $5 and $6 tell:
-- exactly what the position's snapshot did not see. Both kinds are in the order of positions.
-- Indexes: that of positions, in order, so that LIMIT stops it; late rows by that of transactions. Adding 0 keeps the
-- planner from reading all positions for them. The rows are cut first: what is computed of one that cannot be read ends
-- the query there.
(SELECT NULL::uuid, coalesce((SELECT e.{{.Position}} FROM {{.Table}} e WHERE e.{{.Position}} > $3 AND e.{{.Position}} <= $4
                               ORDER BY e.{{.Position}} DESC LIMIT 1), $3)::bigint,
        0::smallint, NULL::bigint, 0::bigint, 0::int, 0::int, NULL::timestamptz, NULL::timestamptz,
        (SELECT era::text FROM outbox_log_era WHERE one), NULL::text, NULL::text, NULL::text, NULL::uuid, NULL::text, NULL::text,
        1::int, NULL::text, NULL::text, NULL::text,
        pg_current_snapshot()::text, NULL::xid8)
UNION ALL
(SELECT {{template "claim_columns" .}}
   FROM (SELECT *
           FROM (SELECT e.* FROM {{.Table}} e WHERE e.{{.Transaction}} = ANY ($5::text[]::xid8[]) AND {{template "late" .}}
                 UNION ALL
                 SELECT e.* FROM {{.Table}} e WHERE e.{{.Transaction}} >= $6::text::xid8 AND {{template "late" .}}) l
          ORDER BY l.{{.Position}}
          LIMIT $2) e)
UNION ALL
(SELECT {{template "claim_columns" .}}
   FROM (SELECT e.*
           FROM {{.Table}} e
          WHERE e.{{.Position}} > $3 AND e.{{.Position}} <= $4
            AND ($1::bigint >> {{template "lane" .}}) & 1 = 1
          ORDER BY e.{{.Position}}
          LIMIT CASE WHEN $8::text IS NULL THEN $2 ELSE 0 END) e)

{{define "late" -}}
    e.{{.Position}} + 0 <= $3 AND e.{{.Position}} + 0 > $7::bigint
                    AND ($8::text IS NULL OR pg_visible_in_snapshot(e.{{.Transaction}}, $8::text::pg_snapshot))
                    AND ($1::bigint >> {{template "lane" .}}) & 1 = 1
{{- end}}
