-- browse: speaks for a tenant, until the end of the transaction, where row-level security asks for one: for its
-- application, which tenants share whose names differ in case only. The statements that follow compare the tenant.
SELECT set_config('app.current_tenant', coalesce((SELECT a.id::text FROM apps a WHERE lower(a.namespace) = lower({{arg .Tenant}}::text)), ''), true)
