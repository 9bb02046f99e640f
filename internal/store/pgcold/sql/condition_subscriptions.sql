-- conditions: subscriptions whose oldest event that is not acknowledged was written long ago. Locks nothing. Index:
-- that of the log's positions.
SELECT 'warning', s.name, format('subscription %s has had events to fetch or acknowledge since %s; without a consumer it keeps the log until %s', s.name,
                                  to_char(o.since, 'YYYY-MM-DD HH24:MI'), to_char(s.seen_at + s.keep, 'YYYY-MM-DD HH24:MI')), o.since, NULL::text
  FROM outbox_subscriptions s
 CROSS JOIN LATERAL (SELECT least((SELECT min(l.created_at) FROM outbox_subscription_events v JOIN outbox_log l ON l.position = v.position WHERE v.subscription = s.name),
                                  (SELECT l.created_at FROM outbox_log l WHERE l.position > s.position
                                      AND (s.types IS NULL OR l.event_topic = ANY (s.types)) ORDER BY l.position LIMIT 1)) AS since) o
 WHERE o.since < {{arg .Now}}::timestamptz - make_interval(secs => {{arg .IdleSeconds}}::float8)
