-- why: how far each reader of a log has come with one event: the relays of its sinks, the groups, and the
-- subscriptions. Rows before the event that a reader has still to pass are counted up to 100,000. Locks nothing.
-- Indexes: that of positions; outbox_deliveries_once; the primary keys. Reads all of outbox_lanes, 64 rows for each
-- table and group.
WITH event AS MATERIALIZED (
    SELECT {{arg .Leased}}::text AS log, {{arg .Event.ID}}::text::uuid AS id, {{arg .Event.Position}}::bigint AS position, {{arg .Xid}}::text::xid8 AS xid,
           {{arg .Event.Lane}}::int AS lane, {{arg .Event.Topic}}::text AS topic, {{arg .Event.Tenant}}::text AS tenant
), reader AS (
    SELECT l.table_name AS leased FROM event, outbox_lanes l WHERE l.table_name = event.log OR starts_with(l.table_name, event.log || '/')
    UNION
    SELECT p.table_name FROM event, outbox_log_positions p WHERE starts_with(p.table_name, event.log || '/')
), came AS (
    SELECT CASE WHEN r.leased = event.log THEN 'sinks' ELSE 'group' END AS kind, substr(r.leased, length(event.log) + 2) AS name,
           p.position, p.snapshot, p.late_position, p.late_snapshot,
           {{if .Deliveries}}d.status, d.attempts, d.last_error{{else}}NULL AS status, NULL::int AS attempts, NULL AS last_error{{end}},
           EXISTS (SELECT FROM outbox_pauses o WHERE o.table_name IN ('', r.leased) AND o.topic = '' AND o.destination = '') AS paused
      FROM event CROSS JOIN reader r
      LEFT JOIN LATERAL (SELECT * FROM outbox_log_positions p WHERE p.table_name = r.leased AND p.lanes & (1::bigint << event.lane) <> 0
                          ORDER BY p.position DESC, p.id DESC LIMIT 1) p ON true
      {{- if .Deliveries}}
      LEFT JOIN LATERAL (SELECT d.status, d.attempts, d.last_error FROM outbox_deliveries d WHERE d.event_id = event.id AND d.outbox_table = r.leased
                          ORDER BY d.position DESC LIMIT 1) d ON true
      {{- end}}
    UNION ALL
    SELECT 'subscription', s.name, s.position, s.snapshot, s.late_position, s.late_snapshot,
           CASE WHEN event.topic <> ALL (s.types) OR event.tenant <> s.tenant THEN 'other'
                WHEN v.until > now() THEN 'given' WHEN v.id IS NOT NULL THEN 'pending'
                WHEN EXISTS (SELECT FROM job_dlq l WHERE l.original_job_id = event.id AND l.outbox_table = 'outbox_subscription_events'
                                AND l.destination = s.name AND l.replayed_at IS NULL AND l.discarded_at IS NULL) THEN 'dead' END,
           v.attempts, v.error_history -> -1 ->> 'error', s.paused_at IS NOT NULL
      FROM event CROSS JOIN outbox_subscriptions s
      LEFT JOIN outbox_subscription_events v ON v.subscription = s.name AND v.position = event.position AND v.id = event.id
)
SELECT c.kind, c.name, coalesce(c.position >= event.position AND pg_visible_in_snapshot(event.xid, c.snapshot)
                                OR c.late_position >= event.position AND pg_visible_in_snapshot(event.xid, c.late_snapshot), false) AS passed,
       (SELECT count(*) FROM (SELECT FROM {{.Table}} e WHERE e.{{.Position}} > coalesce(c.position, 0) AND e.{{.Position}} < event.position LIMIT 100000) b)::int AS before,
       coalesce(c.status, ''), coalesce(c.attempts, 0), coalesce(c.last_error, ''), c.paused
  FROM event CROSS JOIN came c
 ORDER BY c.kind, c.name
