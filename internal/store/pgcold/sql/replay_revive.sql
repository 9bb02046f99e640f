-- replay: makes delivered rows undelivered again, where they stand. Locks them. Index: that of the id or of the
-- position. What was delivered later, or is not delivered, is left as it is: it was put back since. The generation
-- rises, or the sink would refuse the event as a copy.
UPDATE {{.Table}} e
   SET {{if .Status}}{{.Status}} = {{.Pending}}, {{end}}{{.Attempts}} = 0, {{.NextRetryAt}} = NULL, {{.DeliveredAt}} = NULL
       {{- if .Generation}}, {{.Generation}} = coalesce(e.{{.Generation}}, 0) + 1{{end}}
       {{- if .DeliveredTo}}, {{.DeliveredTo}} = {{template "replay_served" .}}{{end}}
  FROM (SELECT * FROM unnest({{arg .Positions}}::bigint[], {{arg .IDs}}::uuid[]) AS c (position, id) ORDER BY c.position) c
 WHERE e.{{.ID}} = c.id AND e.{{.Position}} = c.position
   AND {{template "replay_delivered" .}} AND e.{{.DeliveredAt}} < {{arg .D.Until}}::timestamptz

{{- define "replay_served" -}}
    {{- if and .Destinations .D.Destination -}}
    (SELECT jsonb_agg(d) FROM jsonb_array_elements_text(e.{{.Destinations}}::jsonb) d WHERE d <> {{arg .D.Destination}}::text)
    {{- else}}NULL{{end}}
{{- end}}
