-- record: the session that holds the lock of lock.sql, as a text for people; no row if none holds it. $1 job id.
-- Changes nothing, locks nothing. No index.
SELECT format('process %s, login %s, application "%s"', a.pid, a.usename, a.application_name)
  FROM hashtextextended('outbox river job ' || $1::text, 0) AS key,
       pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND l.classid = ((key >> 32) & 4294967295)::oid AND l.objid = (key & 4294967295)::oid
 LIMIT 1
