-- subscription: removes it, with what it has fetched. Locks its row. Index: the primary key.
DELETE FROM outbox_subscriptions s WHERE {{template "subscription_own" .}}
