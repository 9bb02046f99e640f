-- indexes: those of outbox_events with a name of ADR-004's, and whether each is lean. $1 their names.
SELECT c.relname, i.indpred IS NOT NULL OR m.amname = 'brin', i.indisvalid, pg_get_indexdef(i.indexrelid)
  FROM pg_index i
  JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_am m ON m.oid = c.relam
 WHERE i.indrelid = to_regclass('outbox_events')
   AND c.relname = ANY ($1)
 ORDER BY c.relname
