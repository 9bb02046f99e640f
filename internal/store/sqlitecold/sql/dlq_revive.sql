-- dlq: puts dead rows back into their queue, at the place they have. In a write transaction. Returns the events it put
-- back; the rest is not in a state to be put back. Index: that of the position. The generation rises, or the sink
-- would refuse the event as a copy. Of several destinations only those of the letters are served again. Of
-- outbox_deliveries the letters are of one row an event: the caller sees to it.
WITH chosen AS MATERIALIZED (
    {{template "dlq_chosen" .}}
)
UPDATE {{.Table}} AS e
   SET {{if .Status}}{{.Status}} = {{.Pending}}, {{end}}{{.Attempts}} = 0, {{.NextRetryAt}} = NULL
       {{- if .DeliveredAt}}, {{.DeliveredAt}} = NULL{{end}}
       {{- if .Generation}}, {{.Generation}} = max(coalesce(e.{{.Generation}}, 0), c.generation) + 1{{end}}
       {{- if .DeliveredTo}}, {{.DeliveredTo}} = {{template "dlq_served" .InRow}}{{end}}
       {{- if .Replace}}, {{.Payload}} = {{arg .Body}}{{end}}
  FROM chosen c
 WHERE {{template "dlq_same" .}}
   AND ({{template "dlq_dead" .}})
RETURNING {{.ID}}
