-- dlq: puts dead rows back into their queue, at the place they have. Locks the rows. Returns the events it put back;
-- the rest is not in a state to be put back. Index: that of the event id. The generation rises, or the sink would
-- refuse the event as a copy. Of several destinations only those of the letters are served again. Of outbox_deliveries
-- (Owed) the letters are of one row an event: the caller sees to it.
WITH chosen AS MATERIALIZED (
    {{template "dlq_chosen" .}}
)
UPDATE {{.Table}} e
   SET {{if .Status}}{{.Status}} = {{.Pending}}, {{end}}{{.Attempts}} = 0, {{.NextRetryAt}} = NULL
       {{- if .DeliveredAt}}, {{.DeliveredAt}} = NULL{{end}}
       {{- if .Generation}}, {{.Generation}} = greatest(e.{{.Generation}}, c.generation) + 1{{end}}
       {{- if .DeliveredTo}}, {{.DeliveredTo}} = {{template "dlq_served" .}}{{end}}
       {{- if .Replace}}, {{.Payload}} = {{arg .Body}}::jsonb{{end}}
  FROM chosen c
 WHERE e.{{.ID}} = c.event
   {{- if or .DeleteDead .Owed}} AND e.{{.Position}} = c.position{{end}}
   AND ({{template "dlq_dead" .}})
RETURNING e.{{.ID}}

{{- define "dlq_chosen" -}}
    SELECT l.original_job_id AS event, max(l.generation) AS generation, max(l.position) AS position, array_agg(l.destination) AS destinations
      FROM job_dlq l
     WHERE l.id = ANY ({{arg .IDs}}::uuid[])
     GROUP BY l.original_job_id
     ORDER BY l.original_job_id -- so that two replays of letters of the same events do not wait for each other in a circle
{{- end}}

{{- /*
Rows that may be put back, e, for letters of generation c.generation: dead ones; and of an event with several
destinations one that was replayed for another of them and has arrived there. A row still on its way there cannot take
on a further destination: a relay that has read it already would settle it as delivered.
*/ -}}
{{define "dlq_dead" -}}
    {{- if .Status}}e.{{.Status}} = {{.Dead}}{{else}}false{{end}}
    {{- if and .Destinations .DeliveredTo .Generation}}
        OR {{if .Status}}e.{{.Status}} = {{.Delivered}}{{else}}e.{{.DeliveredAt}} IS NOT NULL{{end}}
           AND jsonb_typeof(e.{{.Destinations}}::jsonb) = 'array' AND e.{{.Generation}} > c.generation
    {{- end}}
{{- end}}

{{- /* The destinations of row e that need nothing more. A letter without one is of an event that failed as a whole. */ -}}
{{define "dlq_served" -}}
    {{- if .Destinations -}}
    CASE WHEN jsonb_typeof(e.{{.Destinations}}::jsonb) <> 'array' THEN NULL
            WHEN array_position(c.destinations, NULL) IS NOT NULL THEN e.{{.DeliveredTo}}
            ELSE (SELECT jsonb_agg(d) FROM jsonb_array_elements_text(e.{{.Destinations}}::jsonb) d WHERE d <> ALL (c.destinations)) END
    {{- else}}NULL{{end}}
{{- end}}
