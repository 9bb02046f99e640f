-- browse: speaks for a tenant, until the end of the transaction, where row-level security asks for one. Its
-- namespace or the id of its application.
SELECT set_config('app.current_tenant', coalesce((SELECT a.id::text FROM apps a WHERE lower(a.namespace) = lower({{arg .Tenant}}::text) OR a.id::text = lower({{arg .Tenant}}::text)), ''), true)
