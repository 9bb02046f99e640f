-- run: speaks for a tenant, until the end of the transaction, to row-level security. $1 tenant.
SELECT set_config('app.current_namespace', $1, true)
