-- subscription: what outbox_nack says. Locks the rows that it gives back.
SELECT n.attempt, n.again_at, n.dead
  FROM outbox_subscriptions s CROSS JOIN LATERAL outbox_nack(s.name, $3, $4, $5, $6::bigint * interval '1 microsecond') n
 WHERE s.name = $1 AND ($2 = '' OR s.tenant = $2)
