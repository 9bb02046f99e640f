-- settle: copies what sinks owe of some rows into outbox_deliveries, before settle_delivered.sql marks those in the
-- same transaction.
-- $1 table, $2 owner, $3 lanes, $4 epochs; the rows: $5 positions, ascending, $6 ids, $7 generations; one entry an owed
-- delivery: $8 where in those arrays, from 1, $9 sinks, $10 destinations, $11 attempts, $12 delays in microseconds, $13
-- errors ('' for none); one entry a row: $14 lanes, $15 order keys, $16 topics, $17 keys, $18 aggregate types, $19
-- tenants, $20 sources, $21 schema ids, $22 schema versions, $23 sequences (0 for none), $24 payloads, $25 metadata,
-- $26 times of the event, $27 times of its insert.
-- A log's rows are not looked for: nobody changes them. $28 are the eras in which they were claimed, one entry a row. A
-- server that has forgotten earlier settles copies nothing of those: all that they were about is claimed again.
-- Guarded as in settle_delivered.sql. It locks the rows of the lanes too, so that they cannot change hands before it is
-- done: whoever takes one over asks what it owes, once.
-- The rows' values come from the relay, which has them as every claim reads them, whatever the table's types are.
-- ARRAY has the rows looked up once. With IN they are looked up again for each owed delivery, since the relay's
-- sessions take no hash join (measured: 800 rows that each owe five, 14.5 s and 1.1 s).
WITH held AS MATERIALIZED (
    {{template "held"}}
       FOR SHARE OF l
)
INSERT INTO outbox_deliveries (
       outbox_table, sink, lane, order_key, event_id, generation, destinations, event_topic, event_key, aggregate_type,
       tenant_id, source, schema_id, schema_version, sequence, payload, metadata, occurred_at, written_at,
       attempts, next_retry_at, last_error, error_history)
SELECT $1, d.sink, ($14::smallint[])[d.n], ($15::bigint[])[d.n], ($6::uuid[])[d.n], coalesce(($7::int[])[d.n], 0)::smallint,
       jsonb_build_array(d.destination), ($16::text[])[d.n], ($17::text[])[d.n], nullif(($18::text[])[d.n], ''),
       nullif(($19::text[])[d.n], ''), nullif(($20::text[])[d.n], ''), nullif(($21::text[])[d.n], ''), ($22::int[])[d.n],
       nullif(($23::bigint[])[d.n], 0), ($24::text[])[d.n]::json, nullif(($25::text[])[d.n], '')::json,
       ($26::timestamptz[])[d.n], coalesce(($27::timestamptz[])[d.n], now()),
       d.attempts, CASE WHEN d.delay > 0 THEN now() + d.delay * interval '1 microsecond' END, nullif(d.error, ''),
       CASE WHEN d.error <> '' THEN jsonb_build_array(jsonb_build_object('error', d.error, 'timestamp', now())) END
  FROM unnest($8::int[], $9::text[], $10::text[], $11::int[], $12::bigint[], $13::text[])
       WITH ORDINALITY AS d (n, sink, destination, attempts, delay, error, at)
{{- if .Transaction}}
 WHERE ($14::smallint[])[d.n] = ANY (ARRAY(SELECT lane FROM held))
   AND EXISTS (SELECT FROM outbox_log_era WHERE one AND era::text = ($28::text[])[d.n])
   AND $5::bigint[] IS NOT NULL -- a statement must name all its parameters
{{- else}}
 WHERE d.n = ANY (ARRAY(SELECT o.n FROM ({{template "found" .}}) o))
{{- end}}
 ORDER BY d.at
ON CONFLICT DO NOTHING
