-- write: one event, the usual case, inside the caller's transaction. Parameters as in write.sql, each a single value,
-- or NULL.
-- Half the price of write.sql for one row: no function scan to set up, and a plan that needs no new planning for each
-- call (measured: 30 of 200 us of PostgreSQL's CPU and 20 of 110 us of the writer's, of a transaction with one business
-- INSERT).
INSERT INTO {{.Table}} (id, event_topic, occurred_at, schema_id, schema_version, aggregate_id, aggregate_type,
                        tenant_id, source_bc, destination_topics, payload, metadata)
{{- if .Checked}}
SELECT $1::uuid, $2::text, $3::timestamptz, $4::text, $5::int, $6::text, $7::text,
       $8::text, $9::text, $10::text::jsonb, $11::text::jsonb, $12::text::jsonb
 WHERE {{template "encoding"}}
{{- else}}
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::jsonb, $11::text::jsonb, $12::text::jsonb)
{{- end}}
{{- if .Chosen}}
ON CONFLICT (id) DO NOTHING
{{- end}}
