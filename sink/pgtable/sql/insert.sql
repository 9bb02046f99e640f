-- Inserts a batch of events in its order and returns those that are new.
-- Locks: none but those of the new rows; a copy that another session is inserting is waited for.
-- Index: the primary key, which refuses copies.
INSERT INTO {{.Table}} (
  event_id, origin, generation, topic, aggregate_type, aggregate_id, tenant_id, source, schema_id, schema_version,
  sequence, occurred_at, payload, metadata
)
SELECT
  event_id::uuid, origin, generation, topic, nullif(aggregate_type, ''), nullif(aggregate_id, ''),
  nullif(tenant_id, ''), nullif(source, ''), nullif(schema_id, ''), nullif(schema_version, 0),
  nullif(sequence, 0), nullif(occurred_at, '')::timestamptz, payload::jsonb, nullif(metadata, '')::jsonb
FROM unnest(
  $1::text[], $2::bigint[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
  $10::integer[], $11::bigint[], $12::text[], $13::text[], $14::text[]
) WITH ORDINALITY AS batch (
  event_id, origin, generation, topic, aggregate_type, aggregate_id, tenant_id, source, schema_id, schema_version,
  sequence, occurred_at, payload, metadata, place
)
ORDER BY place
ON CONFLICT (event_id, origin, generation) DO NOTHING
RETURNING event_id, origin, generation
