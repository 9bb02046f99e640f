-- settle: how many of some rows, to be settled as delivered, are undelivered no more, though their lane is the
-- caller's. $1 table, $2 owner, $3 lanes, $4 epochs; one entry a row: $5 positions, $6 ids, $7 lanes. A settle whose
-- reply was lost has settled them. One that was put back since, in another generation, is undelivered. Locks nothing.
-- Index: that of undelivered positions.
WITH held AS MATERIALIZED (
    {{template "held"}}
)
SELECT count(*)
  FROM unnest($5::bigint[], $6::uuid[], $7::smallint[]) AS o (position, id, lane)
 WHERE o.lane = ANY (ARRAY(SELECT lane FROM held))
   AND NOT EXISTS (SELECT FROM {{.Table}} e
                    WHERE e.{{.Position}} = o.position AND e.{{.ID}} = o.id AND e.{{template "undelivered" .}})
