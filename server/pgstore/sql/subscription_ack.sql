-- subscription: what outbox_ack says of each event. Locks the rows it deletes.
SELECT a.id, a.state
  FROM outbox_subscriptions s CROSS JOIN LATERAL outbox_ack(s.name, $3, $4) a
 WHERE s.name = $1 AND ($2 = '' OR s.tenant = $2)
