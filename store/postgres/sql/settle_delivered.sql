-- settle: rows that reached every destination. $1 table, $2 owner, $3 lanes, $4 epochs, $5 positions, $6 ids.
-- Locks the rows it updates. Changes only rows whose lane the caller still holds: a zombie's settle finds none.
-- Index: that of undelivered positions. The id is compared as well, because after a failover to a lagging standby another
-- row may stand at a position that was claimed before.
WITH held AS MATERIALIZED (
    {{template "held"}}
)
UPDATE {{.Table}} e
   SET {{if .Status}}{{.Status}} = {{.Delivered}}{{if .DeliveredAt}}, {{end}}{{end}}
       {{- if .DeliveredAt}}{{.DeliveredAt}} = now(){{end}},
       {{.NextRetryAt}} = NULL
  FROM unnest($5::bigint[], $6::uuid[]) AS o (position, id)
 WHERE e.{{.Position}} = o.position
   AND e.{{.ID}} = o.id
   AND e.{{template "undelivered" .}}
   AND {{template "lane" .}} = ANY (ARRAY(SELECT lane FROM held))
