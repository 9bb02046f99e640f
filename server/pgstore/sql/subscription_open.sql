-- subscription: of some tokens those with events that are not acknowledged, how many, and whether a lease is over.
-- Locks nothing. What is outstanding is read whole. Index: the primary key.
SELECT v.token, count(*), bool_or(v.until <= clock_timestamp())
  FROM outbox_subscription_events v WHERE v.subscription = {{arg .Name}} AND v.token = ANY ({{arg .Tokens}}) GROUP BY v.token
