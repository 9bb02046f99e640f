-- subscription: what outbox_ack says of each event. Locks the rows it deletes.
SELECT a.id, a.state
  FROM outbox_subscriptions s CROSS JOIN LATERAL outbox_ack(s.name, {{arg .IDs}}, {{arg .Tokens}}) a
 WHERE {{template "subscription_own" .}}
