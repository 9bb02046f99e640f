-- settle: rows to try again. $1 table, $2 owner, $3 lanes, $4 epochs, $5 positions, $6 ids, $7 attempts, $8 delays in microseconds,
-- $9 errors ('' for none), $10 destinations already served (a JSON array, or '').
-- Locks the rows it updates; guarded as in settle_delivered.sql. The delay counts from the database's now, so that no relay's clock matters.
WITH held AS MATERIALIZED (
    {{template "held"}}
)
UPDATE {{.Table}} e
   SET {{if .Status}}{{.Status}} = {{.Retrying}},{{end}}
       {{.Attempts}} = o.attempts,
       {{.NextRetryAt}} = now() + o.delay * interval '1 microsecond'
       {{- if .LastError}},
       {{.LastError}} = coalesce(nullif(o.error, ''), e.{{.LastError}}){{end}}
       {{- if .ErrorHistory}},
       {{.ErrorHistory}} = CASE WHEN o.error = '' THEN e.{{.ErrorHistory}}
                               ELSE coalesce(e.{{.ErrorHistory}}, '[]') || jsonb_build_object('error', o.error, 'timestamp', now()) END{{end}}
       {{- if .DeliveredTo}},
       {{.DeliveredTo}} = nullif(o.delivered_to, '')::jsonb{{end}}
  FROM unnest($5::bigint[], $6::uuid[], $7::int[], $8::bigint[], $9::text[], $10::text[])
       AS o (position, id, attempts, delay, error, delivered_to)
 WHERE e.{{.Position}} = o.position
   AND e.{{.ID}} = o.id
   AND e.{{template "undelivered" .}}
   AND {{template "lane" .}} = ANY (ARRAY(SELECT lane FROM held))
