-- status: for each table whether it exists, this role may read it, and row-level security hides rows of it; its
-- name in leases, its columns, and the session that has had it locked against reads for more than a second. Then
-- the sessions that wait for a lock while they use one of these tables, with the sessions that block them; at most
-- 20. Then what keeps the server from writing. One JSON object a row. Reads the catalog and the lock table only.
WITH asked AS MATERIALIZED (
    SELECT a.name, c.oid, c.relname, c.relnamespace
      FROM unnest({{arg .Quoted}}::text[], {{arg .Names}}::text[]) AS a (quoted, name)
      LEFT JOIN pg_class c ON c.oid = to_regclass(a.quoted)
), waiter AS MATERIALIZED (
    SELECT w.pid, min(w.waitstart) AS since, min(a.name) AS name
      FROM pg_locks w
      JOIN pg_locks l ON l.pid = w.pid AND l.locktype = 'relation'
      JOIN asked a ON a.oid = l.relation
     WHERE NOT w.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
     GROUP BY w.pid
     LIMIT 20
)
SELECT 'table', json_build_object(
           'name', a.name, 'exists', a.oid IS NOT NULL,
           'readable', coalesce(has_table_privilege(a.oid, 'SELECT'), false),
           'hidden', a.oid IS NOT NULL AND row_security_active(a.oid) AND NOT coalesce((
               -- USING (true). pg_get_expr would wait for a lock on the table.
               SELECT bool_or(p.polpermissive AND p.polqual::text LIKE '{CONST :consttype 16 %:constvalue 1 [ 1 %')
                      AND bool_and(p.polpermissive OR p.polname = 'producers see the row that they insert')
                 FROM pg_policy p
                WHERE p.polrelid = a.oid AND p.polcmd IN ('*', 'r')
                  AND EXISTS (SELECT FROM unnest(p.polroles) r
                               WHERE r = 0 OR pg_has_role(current_user, r, 'USAGE'))), false),
           'leased', CASE WHEN a.relnamespace = (SELECT h.relnamespace FROM pg_class h
                                                  WHERE h.oid = to_regclass('outbox_lanes')) THEN a.relname::text
                          ELSE (SELECT n.nspname FROM pg_namespace n WHERE n.oid = a.relnamespace) || '.' || a.relname
                     END,
           'columns', (SELECT json_agg(t.attname) FROM pg_attribute t
                        WHERE t.attrelid = a.oid AND t.attnum > 0 AND NOT t.attisdropped),
           'locked', (SELECT {{template "status_session" "k.pid"}}
                        FROM pg_locks k LEFT JOIN pg_stat_activity t ON t.pid = k.pid
                       WHERE k.relation = a.oid
                         AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                         AND k.granted AND k.mode = 'AccessExclusiveLock' AND k.pid <> pg_backend_pid()
                         AND coalesce(t.xact_start < clock_timestamp() - interval '1 s', true) LIMIT 1))
  FROM asked a
UNION ALL
SELECT 'blocked', json_build_object(
           'table', w.name, 'waits', {{template "status_session" "w.pid"}},
           'seconds', extract(epoch FROM clock_timestamp() - w.since),
           'by', (SELECT json_agg({{template "status_session" "b.pid"}})
                    FROM unnest(pg_blocking_pids(w.pid)) AS b (pid)))
  FROM waiter w
UNION ALL
SELECT 'server', json_build_object(
           'observer', (SELECT count(*) > 0 AND NOT bool_or(r.rolname = 'outbox_relay')
                          FROM pg_roles r
                         WHERE r.rolname IN ('outbox_reader', 'outbox_operator', 'outbox_gateway', 'outbox_consumer',
                                             'outbox_relay')
                           AND pg_has_role(current_user, r.oid, 'USAGE')),
           'readOnly',
           CASE WHEN pg_is_in_recovery() THEN 'the server is a standby'
                WHEN current_setting('default_transaction_read_only')::bool
                THEN 'default_transaction_read_only is on for this role, database or server' END)

{{- /* A session, by its pid. A prepared transaction has none. What the role may not see of it is NULL. */ -}}
{{define "status_session" -}}
(SELECT json_build_object('pid', {{.}}, 'application', s.application_name, 'login', s.usename,
                          'seconds', extract(epoch FROM clock_timestamp() - s.xact_start))
   FROM (SELECT) one LEFT JOIN pg_stat_activity s ON s.pid = {{.}})
{{- end}}
