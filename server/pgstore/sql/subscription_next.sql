-- subscription: what outbox_next gives, to the tenant whose it is. Locks the subscription, and the events it gives.
SELECT n.id, n.position, n.token, n.attempt, n.type, n.key, n.tenant, n.occurred_at, n.payload, n.metadata
  FROM outbox_subscriptions s CROSS JOIN LATERAL outbox_next(s.name, $3) n
 WHERE s.name = $1 AND ($2 = '' OR s.tenant = $2)
