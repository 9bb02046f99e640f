-- check: whether row-level security shows this role no row of a table, for any tenant.
-- It does unless it is not active for the role, or there is a policy for the role, as roles.sql makes one for
-- outbox_gateway.
SELECT row_security_active(c.oid)
       AND NOT EXISTS (
           SELECT FROM pg_policy p
            WHERE p.polrelid = c.oid
              AND EXISTS (SELECT FROM unnest(p.polroles) r WHERE r = 0 OR pg_has_role(current_user, r, 'USAGE')))
  FROM pg_class c
 WHERE c.oid = to_regclass({{arg .Table}})
