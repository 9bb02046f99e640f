-- lanes: the groups of a log that no relay has served yet; none if one has. Locks nothing. Reads all of outbox_lanes,
-- 64 rows for each table and group.
SELECT DISTINCT 'group:' || substr(l.table_name, length({{arg .Leased}}::text) + 2)
  FROM outbox_lanes l
 WHERE starts_with(l.table_name, {{arg .Leased}}::text || '/')
   AND NOT EXISTS (SELECT FROM outbox_lanes WHERE table_name = {{arg .Leased}}::text)
 ORDER BY 1
