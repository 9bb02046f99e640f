-- conditions: which tables of ours lack the index that a claim reads. Locks nothing.
SELECT 'critical', w.name, format('%s has no index %s: each claim reads the whole table, about %s rows', w.name, w.index, greatest(c.reltuples, 0)::bigint), NULL::timestamptz,
       format('CREATE INDEX CONCURRENTLY %s ON %s %s', w.index, w.name, w.definition)
  FROM (VALUES ('outbox_events', 'outbox_events_undelivered', '(position) WHERE status IN (''NEW'', ''FAILED'')'),
               ('event_outbox', 'event_outbox_undelivered', '(position) WHERE status = ''pending'''),
               ('crawl_outbox', 'crawl_outbox_undelivered', '(id) WHERE published_at IS NULL'),
               ('outbox_deliveries', 'outbox_deliveries_undelivered', '(queue, position) WHERE status = ''pending'''),
               ('outbox_deliveries', 'outbox_deliveries_lanes', '(queue, lane) WHERE status = ''pending'''),
               ('outbox_log', 'outbox_log_behind', '(position)')) AS w (name, index, definition)
  JOIN pg_class c ON c.oid = to_regclass(w.name)
 WHERE to_regclass(w.index) IS NULL
