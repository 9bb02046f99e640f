-- retention: a page of rows in the order in which they usually grow old, with whether each is due, and
-- whether it was written so long ago that it can be. After is the last place of the page before, or
-- NULL. Locks nothing.
-- The page is cut before it is filtered, so that a statement never reads more than the limit, whatever stands in front
-- of what is due.
-- Index: the b-tree of that order, which is there for another purpose. An index of delivery times of our own would be
-- paid at every settle (docs/adr/0004).
SELECT e.ctid::text, e.tableoid, e.{{.ID}}, {{if .Position}}e.{{.Position}}::bigint{{else}}0::bigint{{end}},
       CASE WHEN {{arg .Content}}::boolean AND {{template "removable" .}} THEN to_jsonb(e)::text END,
       e.{{.ByColumn}}::text,
       coalesce({{template "removable" .}}, false),
       coalesce({{if .WrittenAt}}e.{{.WrittenAt}}{{else}}e.{{.DeliveredAt}}{{end}}::timestamptz < {{template "cut" .}}, false)
  FROM {{.Table}} e
 WHERE e.{{.ByColumn}} > coalesce({{arg .After}}::text::{{.ByType}}, {{template "walk_start" .}})
   {{- if ne .ByType "bigint"}}
   AND e.{{.ByColumn}} < {{template "walk_end" .}}
   {{- end}}
 ORDER BY e.{{.ByColumn}}
 LIMIT {{arg .Limit}}

{{- /*
Delivered (or replayed), and long enough ago. What is undelivered, waits for a retry or is dead is none of it; nor is
an event that was replayed for one of its destinations, arrived there, and has a letter for another: a replay of that
one needs the row. count(*), because of an EXISTS the planner may make a hash of all letters. Index:
idx_job_dlq_original_job_id.
*/ -}}
{{define "removable" -}}
    ({{if .Status}}e.{{.Status}} = {{.Delivered}}{{else}}e.{{.DeliveredAt}} IS NOT NULL{{end}} AND {{template "aged" .}}
    {{- template "unneeded" .}})
{{- end}}

{{define "unneeded"}}
    {{- if and .Destinations .DeliveredTo .Generation}}
        AND (coalesce(e.{{.Generation}}, 0) = 0
             OR (SELECT count(*) FROM job_dlq l WHERE l.original_job_id = e.{{.ID}} AND l.replayed_at IS NULL AND l.discarded_at IS NULL) = 0)
    {{- end}}
{{- end}}

{{- /* A delivered row without a time of delivery, as an upgraded table has them, counts from when it was written. */ -}}
{{define "aged" -}}
    {{if and .DeliveredAt .WrittenAt}}coalesce(e.{{.DeliveredAt}}::timestamptz, e.{{.WrittenAt}}::timestamptz)
    {{- else}}e.{{or .DeliveredAt .WrittenAt}}::timestamptz{{end}} < {{template "cut" .}}
{{- end}}

{{define "cut"}}now() - {{arg .Age}}::bigint * interval '1 microsecond'{{end}}

{{- /* UUIDv7s begin with the milliseconds of their making. The start is 2020, before there were any: it leaves out
nearly all ids of other versions, which tell no time and are left to the sweep. */ -}}
{{define "walk_start" -}}
    {{if eq .ByType "uuid"}}'016f5e66-e800-7000-8000-000000000000'::uuid
    {{- else if eq .ByType "timestamptz"}}'-infinity'::timestamptz
    {{- else}}'-9223372036854775808'::bigint{{end}}
{{- end}}

{{define "walk_end" -}}
    {{if eq .ByType "uuid"}}(lpad(to_hex(floor(extract(epoch FROM {{template "cut" .}}) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
    {{- else}}{{template "cut" .}}{{end}}
{{- end}}
