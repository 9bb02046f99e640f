-- subscription: all of a tenant, and how they stand. What is outstanding is read whole, and rows of the log are counted
-- up to 100,000. Letters where the role may see them. Locks nothing. Indexes: that of positions; of letters
-- job_dlq_replay.
SELECT s.name, coalesce(s.tenant, ''), s.types, (extract(epoch FROM s.lease) * 1000000)::bigint, s.max_attempts, s.position::text,
       (SELECT count(*) FROM (SELECT FROM outbox_log e WHERE e.position > s.position LIMIT 100000) b)::int,
       (SELECT count(*) FROM outbox_subscription_events v WHERE v.subscription = s.name)::int,
       (SELECT e.created_at FROM outbox_subscription_events v CROSS JOIN LATERAL outbox_subscription_event(v) e
         WHERE v.subscription = s.name ORDER BY v.position LIMIT 1), s.seen_at, s.paused_at
       {{- if .Letters}}, (SELECT count(*) FROM job_dlq d
                            WHERE coalesce(d.outbox_table, '') = 'outbox_subscription_events' AND d.destination = s.name AND d.origin->>'subscription_id' = s.id::text
                              AND d.replayed_at IS NULL AND d.discarded_at IS NULL)::int
       {{- else}}, NULL::int{{end}}
  FROM outbox_subscriptions s
{{with .Tenant}} WHERE s.tenant = {{arg .}}
{{end}} ORDER BY s.name
