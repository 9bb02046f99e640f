-- settle: rows to try again. $1 table, $2 owner, $3 lanes, $4 epochs, $5 positions, ascending, $6 ids, $7 generations,
-- $8 attempts, $9 delays in microseconds, $10 errors ('' for none), $11 destinations already served (a JSON array, or
-- '').
-- Locks the rows it updates; guarded as in settle_delivered.sql. The delay counts from the database's now, so that no
-- relay's clock matters.
WITH held AS MATERIALIZED (
    {{template "held"}}
)
UPDATE {{.Table}} e
   SET {{if .Status}}{{.Status}} = {{.Retrying}},{{end}}
       {{.Attempts}} = ($8::int[])[o.n],
       {{.NextRetryAt}} = now() + ($9::bigint[])[o.n] * interval '1 microsecond'
       {{- if .LastError}},
       {{.LastError}} = coalesce(nullif(($10::text[])[o.n], ''), e.{{.LastError}}){{end}}
       {{- if .ErrorHistory}},
       {{.ErrorHistory}} = CASE WHEN ($10::text[])[o.n] = '' THEN e.{{.ErrorHistory}}
                               ELSE coalesce(e.{{.ErrorHistory}}, '[]') || jsonb_build_object('error', ($10::text[])[o.n], 'timestamp', now()) END{{end}}
       {{- if .DeliveredTo}},
       {{.DeliveredTo}} = nullif(($11::text[])[o.n], '')::jsonb{{end}}
  FROM ({{template "found" .}}) o
 WHERE {{template "same_row" .}}
   AND $10::text[] IS NOT NULL AND $11::text[] IS NOT NULL -- a table may have no columns for them, but a statement must name all its parameters
