-- migrate: returns the session that holds the lock of lock.sql, as a text for people, or no row if none holds it.
-- $1 key. All names are PostgreSQL's own, whatever the search path is.
SELECT pg_catalog.format('process %s, login %s, application "%s"', a.pid, a.usename, a.application_name)
  FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) l.pid
 WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.objsubid OPERATOR(pg_catalog.=) 1
   AND l.classid OPERATOR(pg_catalog.=) ($1::pg_catalog.int8 OPERATOR(pg_catalog.>>) 32)::pg_catalog.oid
   AND l.objid OPERATOR(pg_catalog.=) ($1::pg_catalog.int8 OPERATOR(pg_catalog.&) 4294967295)::pg_catalog.oid
   AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d
                                           WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
