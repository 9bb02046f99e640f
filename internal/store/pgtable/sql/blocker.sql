-- claim, settle: the session that most likely blocks a statement at a table, or no row. $1 the table, quoted. First a
-- session whose lock on the table excludes reads or writes, then the oldest transaction that is idle and may hold rows
-- locked. Reads the lock table and the list of sessions only.
SELECT format('%s; to end it: SELECT pg_terminate_backend(%s)',
              CASE WHEN b.whole THEN format('table %s is locked by session %s of login %s (application "%s")', $1::text, b.pid, b.usename, b.application_name)
                   ELSE format('session %s of login %s (application "%s") has been idle in a transaction for %s s and may hold rows of %s locked', b.pid, b.usename,
                               b.application_name, round(b.age), $1::text) END, b.pid)
  FROM (SELECT a.pid, a.usename, a.application_name, extract(epoch FROM clock_timestamp() - a.xact_start) AS age,
               l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AS whole
          FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
         WHERE l.relation = to_regclass($1::text) AND l.database = a.datid AND l.granted AND a.pid <> pg_backend_pid()
           AND (l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
                OR l.mode IN ('RowShareLock', 'RowExclusiveLock') AND a.state LIKE 'idle in transaction%' AND a.xact_start < clock_timestamp() - interval '1 s')) AS b
 ORDER BY b.whole DESC, b.age DESC
 LIMIT 1
