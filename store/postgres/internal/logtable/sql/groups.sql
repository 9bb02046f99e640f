-- open: the groups of a log that no relay has served for sinks yet; none if one has. $1 the log's name in its leases.
-- Locks nothing. Reads all of outbox_lanes, 64 rows for each table and group.
SELECT DISTINCT substr(l.table_name, length($1::text) + 2)
  FROM outbox_lanes l
 WHERE starts_with(l.table_name, $1::text || '/')
   AND NOT EXISTS (SELECT FROM outbox_lanes WHERE table_name = $1::text)
 ORDER BY 1
