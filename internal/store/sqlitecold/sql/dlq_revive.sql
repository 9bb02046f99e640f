-- dlq: puts dead rows back into their queue, at the place they have. In a write transaction. Returns the events it put
-- back; the rest is not in a state to be put back. Index: that of the position. The generation rises, or the sink
-- would refuse the event as a copy. Of several destinations only those of the letters are served again. Of
-- outbox_deliveries the letters are of one row an event: the caller sees to it.
WITH chosen AS MATERIALIZED (
    {{template "dlq_chosen" .}}
)
UPDATE {{.Table}} AS e
   SET {{if .Status}}{{.Status}} = {{.Pending}}, {{end}}{{.Attempts}} = 0, {{.NextRetryAt}} = NULL
       {{- if .DeliveredAt}}, {{.DeliveredAt}} = NULL{{end}}
       {{- if .Generation}}, {{.Generation}} = max(coalesce(e.{{.Generation}}, 0), c.generation) + 1{{end}}
       {{- if .DeliveredTo}}, {{.DeliveredTo}} = {{template "dlq_served" .InRow}}{{end}}
       {{- if .Replace}}, {{.Payload}} = {{arg .Body}}{{end}}
  FROM chosen c
 WHERE {{template "dlq_same" .}}
   AND ({{template "dlq_dead" .}})
RETURNING {{.ID}}

{{- /* One row an event of the letters .IDs. whole: one of them names no destination, it is of the event as a whole. */ -}}
{{define "dlq_chosen" -}}
    SELECT l.original_job_id AS event, max(l.generation) AS generation, max(l.position) AS position, json_group_array(l.destination) AS destinations, max(l.destination IS NULL) AS whole
      FROM job_dlq l
     WHERE l.id IN (SELECT value FROM json_each({{arg .IDs}}))
     GROUP BY l.original_job_id
{{- end}}

{{- /* Row e is that of c.event, at c.position. By the position, which has an index in every table; the id, in
whatever form the table has it, tells another's row. */ -}}
{{define "dlq_same" -}}
    e.{{.Position}} = c.position AND lower(CASE typeof(e.{{.ID}}) WHEN 'blob' THEN hex(e.{{.ID}}) ELSE replace(e.{{.ID}}, '-', '') END) = replace(c.event, '-', '')
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
           AND CASE WHEN json_valid(e.{{.Destinations}}) THEN json_type(e.{{.Destinations}}) = 'array' END AND e.{{.Generation}} > c.generation
    {{- end}}
{{- end}}

{{- /* A value of the row that letter c kept (settle_letter.sql), of the class that it had, whatever the type of its
column: SQLite keeps bytes in a column of text, and ORMs put them there. By json_each, because no path of ->> finds a
name with a quote in it. Names are the same in any case. */ -}}
{{define "dlq_kept"}}(SELECT CASE j.type {{template "dlq_class" .}}){{end}}

{{define "dlq_class"}}WHEN 'object' THEN unhex(j.value ->> '$.blob') ELSE j.value END FROM json_each(c.origin) j WHERE j.key = {{.}} COLLATE NOCASE{{end}}

{{- /* The destinations of a row that need nothing more, of c's letters. */ -}}
{{define "dlq_served" -}}
    {{- if .Destinations -}}
    CASE WHEN json_valid({{.Destinations}}) THEN CASE
             WHEN json_type({{.Destinations}}) <> 'array' THEN NULL
             WHEN c.whole THEN {{.DeliveredTo}}
             ELSE nullif((SELECT json_group_array(d.value) FROM json_each({{.Destinations}}) d WHERE d.value NOT IN (SELECT value FROM json_each(c.destinations))), '[]') END END
    {{- else}}NULL{{end}}
{{- end}}
