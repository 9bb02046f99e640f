-- subscription: moves it back, by outbox_rewind. Locks its row.
SELECT outbox_rewind(s.name, {{arg .To}}::timestamptz) FROM outbox_subscriptions s WHERE {{template "subscription_own" .}}
