-- conditions: events that were passed by: one behind them in their key is delivered and they are not. Of the oldest
-- thousand undelivered ones; replayed ones are left out, which go again. Events
-- without a key are left out: those of transactions that were open together may pass one another. Locks nothing. Reads
-- the table once.
WITH waiting AS MATERIALIZED (
    SELECT e.{{.Position}} AS position, e.{{.ID}} AS id, {{template "order_key" .}} AS key, {{template "shown_written_at" .}} AS written
      FROM {{.Table}} e
     WHERE e.{{template "undelivered" .}}
       {{- if .KeylessScope}} AND {{if .Key}}e.{{.Key}} IS NOT NULL{{else}}false{{end}}{{end}}
       {{- if .Generation}} AND e.{{.Generation}} = 0{{end}}
     ORDER BY e.{{.Position}}
     LIMIT 1000
)
SELECT 'critical', {{.TableName}}, format('event %s of %s is undelivered, and %s, which is behind it in its key, is delivered', w.id, {{.TableName}}, min(e.{{.ID}}::text)), w.written,
       format('outbox why %s', w.id)
  FROM waiting w
  JOIN {{.Table}} e ON {{template "order_key" .}} = w.key AND e.{{.Position}} > w.position
 WHERE {{if .Status}}e.{{.Status}} = {{.Delivered}}{{else}}e.{{.DeliveredAt}} IS NOT NULL{{end}}
   {{- if .Generation}} AND e.{{.Generation}} = 0{{end}}
 GROUP BY w.id, w.written, w.position
 ORDER BY w.position
 LIMIT 10
