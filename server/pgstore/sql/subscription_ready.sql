-- subscription: those of some for which outbox_next may have something. Locks nothing. What is outstanding is read
-- until something is found that may be given. Indexes: the primary key; of the log that of positions and that of
-- transactions.
SELECT s.name
  FROM outbox_subscriptions s
 WHERE s.name = ANY ({{arg .Names}}){{with .Tenant}} AND s.tenant = {{arg .}}{{end}}
   AND s.paused_at IS NULL
   AND (EXISTS (SELECT FROM outbox_subscription_events v
                 WHERE v.subscription = s.name AND (v.until IS NULL OR v.until <= now()) AND (v.next_at IS NULL OR v.next_at <= now())
                   AND NOT EXISTS (SELECT FROM outbox_subscription_events o
                                    WHERE o.subscription = s.name AND o.order_key = v.order_key AND (o.until > now() OR o.next_at > now())))
        OR (SELECT count(*) < s.most FROM outbox_subscription_events v WHERE v.subscription = s.name)
           AND (s.late_position IS NOT NULL
                OR (SELECT true FROM outbox_log e WHERE e.position > s.position ORDER BY e.position LIMIT 1) IS NOT NULL
                OR (SELECT true FROM outbox_log e WHERE e.xid = ANY (ARRAY(SELECT pg_snapshot_xip(s.snapshot))) LIMIT 1) IS NOT NULL
                OR (SELECT true FROM outbox_log e WHERE e.xid >= pg_snapshot_xmax(s.snapshot) LIMIT 1) IS NOT NULL))
