-- replay: makes delivered rows undelivered again, where they stand. In a write transaction. Index: the position's.
-- What was delivered later, or is not delivered, is left as it is: it was put back since. The generation rises, or the
-- sink would refuse the event as a copy.
UPDATE {{.Table}} AS e
   SET {{if .Status}}{{.Status}} = {{.Pending}}, {{end}}{{.Attempts}} = 0, {{.NextRetryAt}} = NULL, {{.DeliveredAt}} = NULL
       {{- if .Generation}}, {{.Generation}} = coalesce(e.{{.Generation}}, 0) + 1{{end}}
       {{- if .DeliveredTo}}, {{.DeliveredTo}} = {{template "replay_served" .}}{{end}}
 WHERE e.{{.Position}} IN (SELECT value FROM json_each({{arg .Positions}}))
   AND {{template "replay_delivered" .}} AND {{template "instant" .DeliveredAt}} < {{arg .D.Until}}

{{- define "replay_served" -}}
    {{- if and .Destinations .D.Destination -}}
    (SELECT json_group_array(d.value) FROM json_each(e.{{.Destinations}}) d WHERE d.value <> {{arg .D.Destination}})
    {{- else}}NULL{{end}}
{{- end}}
