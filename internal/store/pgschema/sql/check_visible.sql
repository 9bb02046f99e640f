-- check: whether row-level security hides a table's rows from this role. $1 its name, quoted.
-- It does unless it is not active for the role, or a policy for reading is plainly true for it, as roles.sql makes
-- one for outbox_relay, and no restrictive policy applies to it. That of producers (roles.sql) does not apply to a role
-- that may SELECT from the whole table.
SELECT row_security_active(c.oid)
       AND NOT coalesce((
           SELECT bool_or(p.polpermissive AND pg_get_expr(p.polqual, p.polrelid) = 'true')
                  AND bool_and(p.polpermissive OR p.polname = 'producers see the row that they insert' AND has_table_privilege(c.oid, 'SELECT'))
             FROM pg_policy p
            WHERE p.polrelid = c.oid
              AND p.polcmd IN ('*', 'r')
              AND EXISTS (SELECT FROM unnest(p.polroles) r WHERE r = 0 OR pg_has_role(current_user, r, 'USAGE'))), false)
  FROM pg_class c
 WHERE c.oid = to_regclass($1)
