-- settle: deletes rows that reached every destination, or moves them into outbox_archive, as the layout's settle mode
-- says. $1 table, $2 owner, $3 lanes, $4 epochs, $5 positions, ascending, $6 ids, $7 generations.
-- Locks the rows it deletes. Guarded, and found, as in settle_delivered.sql; index: as there; with Placed $8 places.
-- A row that a pending letter needs stays, for settle_delivered.sql to mark: an event that was replayed for one of its
-- destinations, arrived there, and has a letter for another.
WITH held AS MATERIALIZED (
    {{template "held"}}
){{if eq .Settle "archive"}}, gone AS ({{end}}
DELETE FROM {{.Table}} e
{{- if .Placed}}
 WHERE {{template "placed" .}}
{{- else}}
 USING ({{template "found" .}}) o
 WHERE {{template "same_row" .}}
{{- end}}
   {{- template "unneeded" .}}
{{- if eq .Settle "archive"}}
RETURNING e.{{.ID}} AS id, e.{{.Position}}::bigint AS position, to_jsonb(e) || {{template "as_delivered" .}} AS row
)
INSERT INTO outbox_archive (table_name, id, position, row)
SELECT $1, g.id, g.position, g.row FROM gone g
{{- end}}

{{- /* What settle_delivered.sql would have written, as JSON, so that the archive has the row as retention finds it. */ -}}
{{define "as_delivered" -}}
    (SELECT to_jsonb(d) FROM (SELECT {{if .Status}}{{.Delivered}} AS {{.Status}}, {{end}}
        {{- if .DeliveredAt}}now() AS {{.DeliveredAt}}, {{end}}NULL AS {{.NextRetryAt}}) d)
{{- end}}
