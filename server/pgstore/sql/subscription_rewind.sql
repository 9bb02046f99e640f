-- subscription: moves it back, by outbox_rewind. Locks its row.
SELECT outbox_rewind(s.name, $3::timestamptz) FROM outbox_subscriptions s WHERE s.name = $1 AND ($2 = '' OR s.tenant = $2)
