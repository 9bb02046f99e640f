-- write: one event, the usual case, inside the caller's transaction. '' stands for NULL where that is allowed. ?
-- without numbers, so that every driver takes it.
-- Index: the id's. The position is drawn under the file's write lock, which is held until the commit: positions are in
-- the order of the commits.
INSERT INTO {{.Table}} (id, event_topic, occurred_at, schema_id, schema_version, aggregate_id, aggregate_type, tenant_id, source_bc, destination_topics, payload, metadata)
VALUES {{template "event_values"}}
ON CONFLICT (id) DO NOTHING

{{- define "event_values"}}(?, ?, ?, nullif(?, ''), ?, nullif(?, ''), nullif(?, ''), ?, ?, nullif(?, ''), ?, nullif(?, '')){{end}}
