-- written_log: written of outbox_log, whose rows have the number of their transaction. Locks nothing. Index:
-- outbox_log_late.
SELECT e.id::text, e.event_topic::text, coalesce(e.aggregate_type, '')::text, coalesce(e.aggregate_id, '')::text, e.tenant_id::text, e.source_bc::text,
       coalesce(e.schema_id, '')::text, e.schema_version::int, coalesce(e.destination_topics::text, ''), e.payload::text, coalesce(e.metadata::text, '')
  FROM outbox_log e
 WHERE e.xid = pg_current_xact_id_if_assigned()
 ORDER BY e.position
