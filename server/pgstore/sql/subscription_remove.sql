-- subscription: removes it, with what it has fetched. Locks its row. Index: the primary key.
DELETE FROM outbox_subscriptions s WHERE s.name = $1 AND ($2 = '' OR s.tenant = $2)
