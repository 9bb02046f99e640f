-- subscription: names the tenant to row-level security, for this transaction.
SELECT set_config('app.current_namespace', $1, true)
