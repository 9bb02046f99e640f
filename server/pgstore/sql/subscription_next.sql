-- subscription: what outbox_next gives, to the tenant whose it is. Locks the subscription, and the events it gives.
SELECT n.id, n.position::text, n.token, n.attempt, n.type, n.key, n.order_key::text, n.tenant, n.occurred_at, n.payload, n.metadata
  FROM outbox_subscriptions s CROSS JOIN LATERAL outbox_next(s.name, {{arg .Most}}) n
 WHERE {{template "subscription_own" .}}
