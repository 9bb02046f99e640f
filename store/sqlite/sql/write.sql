-- write: events of one call, in their order, inside the caller's transaction: all of them or, with an error, none.
-- Parameters as in write_one.sql, row after row.
-- RETURNING only where somebody asks which ids were new.
INSERT INTO {{.Table}} (id, event_topic, occurred_at, schema_id, schema_version, aggregate_id, aggregate_type, tenant_id, source_bc, destination_topics, payload, metadata)
VALUES {{range $i, $row := .Rows}}{{if $i}}, {{end}}{{template "event_values"}}{{end}}
ON CONFLICT (id) DO NOTHING
{{- if .Returning}}
RETURNING id
{{- end}}
