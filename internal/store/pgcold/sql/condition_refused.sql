-- conditions: events that every destination has, and whose rows say all the same that they are undelivered: the
-- database has refused to record it. Locks nothing. Index: that of the waiting rows.
SELECT 'warning', {{.TableName}}, format('event %s was delivered and %s does not let that be recorded: %s', e.{{.ID}}, {{.TableName}},
              {{if .LastError}}coalesce(e.{{.LastError}}::text, 'no error is recorded'){{else}}'its table has no column for the error'{{end}}),
       {{template "shown_written_at" .}}, format('outbox events retry %s --table %s', e.{{.ID}}, {{.TableName}})
  FROM {{.Table}} e
 WHERE {{if .DeliveredTo}}e.{{.NextRetryAt}} IS NOT NULL
   AND e.{{template "undelivered" .}}
   AND jsonb_typeof(to_jsonb(e.{{.DeliveredTo}})) = 'array'
   AND jsonb_array_length(to_jsonb(e.{{.DeliveredTo}})) >= {{if .Destinations}}CASE WHEN jsonb_typeof(to_jsonb(e.{{.Destinations}})) = 'array' THEN greatest(jsonb_array_length(to_jsonb(e.{{.Destinations}})), 1) ELSE 1 END{{else}}1{{end}}
       {{- else}}false{{end}}
 ORDER BY e.{{.Position}}
 LIMIT 10
