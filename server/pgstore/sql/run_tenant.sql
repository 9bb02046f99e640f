-- run: speaks for a tenant, until the end of the transaction, to row-level security.
SELECT set_config('app.current_namespace', {{arg .Tenant}}, true)
