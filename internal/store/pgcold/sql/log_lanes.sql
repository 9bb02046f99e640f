-- lanes: how many rows of a log are behind the position of their lane. What a
-- sink has refused is counted by outbox_deliveries. Locks nothing.
WITH {{template "log_behind" .}}
SELECT lane, count(*), min(position), (array_agg(written ORDER BY position))[1], (array_agg(id ORDER BY position))[1], now(),
       0::bigint, 0::bigint, 0::bigint
  FROM behind
 GROUP BY lane

{{- /* The oldest rows of a log that are behind the position of their lane. Late rows are not among them: they are few, and soon gone. Locks nothing. Index: that of positions, from the lane
on that is furthest behind. */ -}}
{{define "log_behind" -}}
asked AS (SELECT {{arg .Leased}}::text, {{arg .Count}}::int, {{arg .Lanes}}::int), -- $1 to $3, as log_places asks
{{template "log_places" .}}, behind AS MATERIALIZED (
    SELECT {{template "lane" .}} AS lane, e.{{.Position}} AS position, e.{{.ID}} AS id, {{template "shown_written_at" .}} AS written,
           e.{{.Topic}}::text AS topic, {{template "shown_tenant" .}} AS tenant
      FROM {{.Table}} e
     WHERE e.{{.Position}} > (SELECT lowest FROM place)
       AND {{template "log_unread" .}}
     ORDER BY e.{{.Position}}
     LIMIT $2
)
{{- end}}
