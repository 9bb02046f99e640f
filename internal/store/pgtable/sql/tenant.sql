-- browse: speaks for a tenant, until the end of the transaction, where row-level security asks for one. $1 its
-- namespace or the id of its application.
SELECT set_config('app.current_tenant', coalesce((SELECT a.id::text FROM apps a WHERE lower(a.namespace) = lower($1) OR a.id::text = lower($1)), ''), true)
