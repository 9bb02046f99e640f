-- conditions: how many connections the server, this database and this role have left. Other roles' sessions are
-- counted too: their number needs no right. Locks nothing. Reads the server's list of sessions.
SELECT CASE WHEN n >= most * 0.95 THEN 'critical' ELSE 'warning' END, what, format('%s of %s connections of %s are in use', n, most, what), NULL::timestamptz, NULL::text
  FROM (SELECT 'the server' AS what, current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most,
               (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend') AS n
        UNION ALL
        SELECT 'database ' || d.datname, d.datconnlimit, (SELECT count(*) FROM pg_stat_activity a WHERE a.datid = d.oid AND a.backend_type = 'client backend')
          FROM pg_database d WHERE d.datname = current_database() AND d.datconnlimit >= 0
        UNION ALL
        SELECT 'role ' || r.rolname, r.rolconnlimit, (SELECT count(*) FROM pg_stat_activity a WHERE a.usesysid = r.oid AND a.backend_type = 'client backend')
          FROM pg_roles r WHERE r.rolname = current_user AND r.rolconnlimit >= 0) AS limits
 WHERE n >= most * 0.8
