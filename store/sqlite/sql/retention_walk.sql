-- retention: a page of rows in the order in which they grow old (.Sweep: in which they are stored),
-- with whether each is due, and whether it was written so long ago that it can be. After is the last
-- place of the page before, or NULL. Locks nothing.
-- The page is cut before it is filtered, so that a statement never reads more than the limit, whatever stands in front
-- of what is due.
-- Index: the position's, which is the rowid of our tables; job_dlq_replayed for letters; the rowid for a sweep.
SELECT '', 0, e.{{.ID}}, {{template "retention_position" .}},
       CASE WHEN {{arg .Content}} AND {{template "removable" .}} THEN {{template "whole_row" .}} END,
       e.{{.ByColumn}},
       coalesce({{template "removable" .}}, false),
       coalesce({{template "written_or_delivered" .}} < {{arg .Before}}, false)
  FROM {{.Table}} AS e
 WHERE {{if eq .ByType "timestamptz"}}e.{{.ByColumn}} > coalesce({{arg .After}}, '') AND e.{{.ByColumn}} < {{arg .Before}}{{else}}e.{{.ByColumn}} > coalesce(CAST({{arg .After}} AS INTEGER), -9223372036854775808){{end}}
 ORDER BY e.{{.ByColumn}}
 LIMIT {{arg .Limit}}

{{- /*
Delivered (or replayed), and long enough ago. What is undelivered, waits for a retry or is dead is none of it; nor is
an event that was replayed for one of its destinations, arrived there, and has a letter for another: a replay of that
one needs the row. Index: idx_job_dlq_original_job_id. A delivered row without a time of delivery, as an upgraded
table has them, counts from when it was written.
*/ -}}
{{define "removable" -}}
    ({{if .Status}}e.{{.Status}} = {{.Delivered}}{{else}}e.{{.DeliveredAt}} IS NOT NULL{{end}}
     AND {{if and .DeliveredAt .WrittenAt}}coalesce({{template "instant" .DeliveredAt}}, {{template "instant" .WrittenAt}}){{else}}{{template "written_or_delivered" .}}{{end}} < {{arg .Before}}
    {{- template "unneeded" .}})
{{- end}}

{{define "written_or_delivered"}}{{if .WrittenAt}}{{template "instant" .WrittenAt}}{{else}}{{template "instant" .DeliveredAt}}{{end}}{{end}}

{{define "unneeded"}}
    {{- if and .Destinations .DeliveredTo .Generation}}
        AND (coalesce(e.{{.Generation}}, 0) = 0
             OR NOT EXISTS (SELECT 1 FROM job_dlq l WHERE l.original_job_id = e.{{.ID}} AND l.replayed_at IS NULL AND l.discarded_at IS NULL))
    {{- end}}
{{- end}}
