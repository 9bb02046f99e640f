-- check: whether row-level security hides a table's rows from this role. $1 its name, quoted.
-- It does unless it is not active for the role, or a policy for reading is plainly true for it, as roles.sql makes one
-- for outbox_relay.
SELECT row_security_active(c.oid)
       AND NOT EXISTS (
           SELECT FROM pg_policy p
            WHERE p.polrelid = c.oid
              AND p.polcmd IN ('*', 'r')
              AND pg_get_expr(p.polqual, p.polrelid) = 'true'
              AND EXISTS (SELECT FROM unnest(p.polroles) r WHERE r = 0 OR pg_has_role(current_user, r, 'USAGE')))
  FROM pg_class c
 WHERE c.oid = to_regclass($1)
