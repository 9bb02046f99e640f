-- write: events of one call, in their order, inside the caller's transaction. $1 ids, $2 topics, $3 times, $4 schema
-- ids, $5 schema versions, $6 aggregate ids, $7 aggregate types, $8 tenants, $9 sources, $10 destinations, $11
-- payloads, $12 metadata; '' stands for NULL where that is allowed, and a NULL array for a column of NULLs (unnest
-- fills the shorter columns up).
-- Takes no lock but the inserted rows'; an id being written by an open transaction is waited for. The identity column
-- is drawn row by row as the function scan gives them, so positions follow the order of the call.
-- Chosen is for ids that may be in the table already. What it adds to each row is a search of the primary key and a log
-- record that confirms the row. It needs SELECT on id. RETURNING only where somebody asks which ids were new.
-- Checked is for database/sql, where nobody can tell the connection's encoding before: in another than UTF-8 it inserts
-- nothing.
INSERT INTO {{.Table}} (id, event_topic, occurred_at, schema_id, schema_version, aggregate_id, aggregate_type,
                        tenant_id, source_bc, destination_topics, payload, metadata)
SELECT r.id, r.topic, r.occurred_at, nullif(r.schema_id, ''), r.schema_version, nullif(r.aggregate_id, ''), nullif(r.aggregate_type, ''),
       r.tenant_id, r.source, nullif(r.destinations, '')::jsonb, r.payload::jsonb, nullif(r.metadata, '')::jsonb
  FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::text[], $5::int[], $6::text[], $7::text[], $8::text[], $9::text[],
              $10::text[], $11::text[], $12::text[])
       AS r (id, topic, occurred_at, schema_id, schema_version, aggregate_id, aggregate_type, tenant_id, source,
             destinations, payload, metadata)
{{- if .Checked}}
 WHERE {{template "encoding"}}
{{- end}}
{{- if .Chosen}}
ON CONFLICT (id) DO NOTHING
{{- end}}
{{- if .Returning}}
RETURNING id
{{- end}}
