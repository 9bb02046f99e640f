-- conditions: whether row-level security and rights do not bind this role. Locks nothing.
SELECT 'advice', r.rolname, format('role %s is %s', r.rolname, CASE WHEN r.rolsuper THEN 'a superuser' ELSE 'bound by no policy (BYPASSRLS)' END), NULL::timestamptz, NULL::text
  FROM pg_roles r
 WHERE r.rolname = current_user AND (r.rolsuper OR r.rolbypassrls)
