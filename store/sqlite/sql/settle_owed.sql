-- settle: copies what a sink owes of a row into outbox_deliveries, before settle_delivered.sql marks the row in the
-- same transaction. ?1 position, ?2 id, ?3 generation, ?4 now; ?5 table, ?6 sink, ?7 destinations, ?8 lane, ?9 order
-- key, ?10 topic, ?11 key, ?12 aggregate type, ?13 tenant, ?14 source, ?15 schema id, ?16 schema version, ?17 sequence,
-- ?18 payload, ?19 metadata, ?20 time of the event, ?21 of its insert, ?22 attempts, ?23 time of the next one, ?24
-- error. Inside the write transaction that settle_held.sql was asked in: the lane cannot change hands before it ends.
-- The row's values come from the relay, which has them as every claim reads them, whatever the table's types are.
INSERT INTO outbox_deliveries (
       outbox_table, sink, destinations, lane, order_key, event_id, generation, event_topic, event_key, aggregate_type,
       tenant_id, source, schema_id, schema_version, sequence, payload, metadata, occurred_at, written_at,
       attempts, next_retry_at, last_error, error_history)
SELECT ?5, ?6, ?7, ?8, ?9, ?2, ?3, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, coalesce(?21, ?4),
       ?22, ?23, ?24, CASE WHEN ?24 IS NOT NULL THEN json_array(json_object('error', ?24, 'timestamp', ?4)) END
  FROM {{.Table}} AS e
 WHERE {{template "claimed" .}}
ON CONFLICT DO NOTHING
