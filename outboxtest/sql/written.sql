-- written: the events of this transaction, savepoints included, in the order of their writing. Locks nothing. Index:
-- idx_outbox_created.
-- created_at is the start of the transaction that wrote the row. Another may have begun in the same microsecond: its
-- rows are seen once it has ended, and
-- this one has not.
SELECT e.id::text, e.event_topic::text, coalesce(e.aggregate_type, '')::text, coalesce(e.aggregate_id, '')::text, e.tenant_id::text, e.source_bc::text,
       coalesce(e.schema_id, '')::text, e.schema_version::int, coalesce(e.destination_topics::text, ''), e.payload::text, coalesce(e.metadata::text, '')
  FROM outbox_events e
 WHERE e.created_at = now()
   AND CASE WHEN e.created_at = now()
            THEN pg_xact_status((pg_snapshot_xmax(pg_current_snapshot())::text::bigint >> 32 << 32 | e.xmin::text::bigint)::text::xid8) = 'in progress' END
 ORDER BY e.position
