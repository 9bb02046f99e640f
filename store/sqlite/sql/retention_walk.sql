-- retention: a page of rows in the order in which they grow old (.Sweep: in which they are stored), with whether each
-- is due, and whether it was written so long ago that it can be. ?1 before when they were delivered, ?2 the last place
-- of the page before, or NULL, ?3 limit, ?4 whether to return the rows' content. Locks nothing.
-- The page is cut before it is filtered, so that a statement never reads more than the limit, whatever stands in front
-- of what is due.
-- Index: the position's, which is the rowid of our tables; job_dlq_replayed for letters; the rowid for a sweep.
SELECT e.{{.ID}}, {{template "retention_position" .}},
       CASE WHEN ?4 AND {{template "removable" .}} THEN {{template "whole_row" .}} END,
       e.{{.ByColumn}},
       coalesce({{template "removable" .}}, false),
       coalesce({{template "instant" .WrittenOr}} < ?1, false)
  FROM {{.Table}} AS e
 WHERE {{if .ByTime}}e.{{.ByColumn}} > coalesce(?2, '') AND e.{{.ByColumn}} < ?1{{else}}e.{{.ByColumn}} > coalesce(CAST(?2 AS INTEGER), -9223372036854775808){{end}}
 ORDER BY e.{{.ByColumn}}
 LIMIT ?3

{{- /*
Delivered (or replayed), and long enough ago. What is undelivered, waits for a retry or is dead is none of it; nor is
an event that was replayed for one of its destinations, arrived there, and has a letter for another: a replay of that
one needs the row. Index: idx_job_dlq_original_job_id. A delivered row without a time of delivery, as an upgraded
table has them, counts from when it was written.
*/ -}}
{{define "removable" -}}
    ({{if .Status}}e.{{.Status}} = {{.Delivered}}{{else}}e.{{.DeliveredAt}} IS NOT NULL{{end}}
     AND {{if and .DeliveredAt .WrittenAt}}coalesce({{template "instant" .DeliveredAt}}, {{template "instant" .WrittenAt}}){{else}}{{template "instant" .WrittenOr}}{{end}} < ?1
    {{- template "unneeded" .}})
{{- end}}

{{define "unneeded"}}
    {{- if and .Destinations .DeliveredTo .Generation}}
        AND (coalesce(e.{{.Generation}}, 0) = 0
             OR NOT EXISTS (SELECT 1 FROM job_dlq l WHERE l.original_job_id = e.{{.ID}} AND l.replayed_at IS NULL AND l.discarded_at IS NULL))
    {{- end}}
{{- end}}
