-- conditions: what sinks owe of events whose own table says that they are undelivered or dead: it would arrive twice.
-- Locks nothing. Index: outbox_deliveries_undelivered.
SELECT 'critical', d.sink, format('%s owes event %s of %s, which says itself that it is undelivered', d.sink, d.event_id, d.outbox_table), d.written_at, NULL::text
  FROM outbox_deliveries d
  JOIN {{.Table}} e ON e.{{.ID}} = d.event_id
 WHERE d.status = 'pending' AND d.outbox_table = {{.TableName}} AND d.generation = {{if .Generation}}e.{{.Generation}}{{else}}0{{end}}
   AND e.{{template "undelivered" .}}
 LIMIT 10
