-- subscription: what outbox_nack says. Locks the rows that it gives back.
SELECT n.attempt, n.again_at, n.dead
  FROM outbox_subscriptions s CROSS JOIN LATERAL outbox_nack(s.name, {{arg .ID}}, {{arg .Token}}, {{arg .Why}}, {{arg .Delay}}::bigint * interval '1 microsecond', coalesce(nullif({{arg .Reason}}::text, ''), 'DeliveryFailed')) n
 WHERE {{template "subscription_own" .}}
