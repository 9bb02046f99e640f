-- retention: how many subscriptions there are, and whether each of them has fetched every row of a part of a log, and
-- had it acknowledged. $1 part. The caller has the part locked, as for truncate.sql. What is outstanding is few, and
-- read whole. A subscription without a consumer for longer than keep keeps nothing: outbox_next tells it so. Indexes:
-- the end of that of positions; for rows that a subscription's snapshot does not see that of transactions.
SELECT count(*)::int, coalesce(bool_and(
           s.late_position IS NULL
           AND (SELECT e.{{.Position}} FROM {{.Table}} e WHERE e.part = $1::smallint ORDER BY e.{{.Position}} DESC LIMIT 1) <= s.position
           AND NOT EXISTS (SELECT FROM {{.Table}} e WHERE e.part = $1::smallint AND e.{{.Transaction}} = ANY (ARRAY(SELECT pg_snapshot_xip(s.snapshot))))
           AND NOT EXISTS (SELECT FROM {{.Table}} e WHERE e.part = $1::smallint AND e.{{.Transaction}} >= pg_snapshot_xmax(s.snapshot))
           AND NOT EXISTS (SELECT FROM outbox_subscription_events v WHERE v.subscription = s.name AND v.part = $1::smallint AND v.origin IS NULL))
           FILTER (WHERE s.seen_at + s.keep >= now()), true)
  FROM outbox_subscriptions s
