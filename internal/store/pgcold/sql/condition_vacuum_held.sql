-- conditions: what keeps vacuum from removing old row versions: transactions of sessions and of standbys, prepared
-- transactions, replication slots. Of other roles' sessions the server tells pg_read_all_stats alone; what it hides has
-- no xact_start and is not found. Locks nothing.
SELECT severity, about, says, since, remedy
  FROM (SELECT 'session ' || a.pid AS about, a.xact_start AS since,
               format('%s %s (%s, %s) has had a transaction open since %s: %s', a.backend_type, a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'), a.usename,
                      to_char(a.xact_start, 'YYYY-MM-DD HH24:MI:SS'), coalesce(left(nullif(a.query, ''), 100), a.state)) AS says,
               format('SELECT pg_terminate_backend(%s)', a.pid) AS remedy
          FROM pg_stat_activity a
         WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker'
           AND (a.datname = current_database() OR a.datname IS NULL)
        UNION ALL
        SELECT 'transaction ' || p.gid, p.prepared, format('prepared transaction %s of %s waits since %s to be ended', p.gid, p.owner, to_char(p.prepared, 'YYYY-MM-DD HH24:MI:SS')),
               format('COMMIT PREPARED %L, or ROLLBACK PREPARED %L', p.gid, p.gid)
          FROM pg_prepared_xacts p
         WHERE p.database = current_database()) AS holders
 CROSS JOIN LATERAL (SELECT CASE WHEN since < clock_timestamp() - make_interval(secs => 6 * {{arg .HeldSeconds}}::float8) THEN 'critical' ELSE 'warning' END AS severity) s
 WHERE since < clock_timestamp() - make_interval(secs => {{arg .HeldSeconds}}::float8)
UNION ALL
SELECT 'warning', 'slot ' || s.slot_name, format('replication slot %s keeps the rows of %s transactions%s', s.slot_name, greatest(age(s.xmin), age(s.catalog_xmin)),
              CASE WHEN s.active THEN '' ELSE ' and nobody reads it' END), NULL, format('start its reader, or SELECT pg_drop_replication_slot(%L)', s.slot_name)
  FROM pg_replication_slots s
 WHERE greatest(age(s.xmin), age(s.catalog_xmin)) > {{arg .DeadRows}}::int
