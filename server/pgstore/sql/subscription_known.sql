-- subscription: whether the tenant has it. Locks nothing. Index: the primary key.
SELECT EXISTS (SELECT FROM outbox_subscriptions s WHERE s.name = $1 AND ($2 = '' OR s.tenant = $2))
