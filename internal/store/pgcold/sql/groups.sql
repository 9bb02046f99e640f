-- groups: the consumer groups that have ever had a lease or a position, and when each was last seen. Those of the logs
-- whose names in leases are given, and the recorded readers of other tables. Locks nothing. Reads all of
-- outbox_lanes, 64 rows for each table and group, and of outbox_relays, a few.
SELECT g.leased, g.of_table, substr(g.reader, 7),
       greatest((SELECT max(r.seen_at) FROM outbox_relays r WHERE r.table_name = g.leased),
                (SELECT max(l.expires_at) FROM outbox_lanes l
                  WHERE l.table_name = g.leased AND NOT EXISTS (SELECT FROM outbox_relays r WHERE r.table_name = l.table_name AND r.owner = l.owner)))
  FROM (SELECT r.table_name AS leased, r.table_name AS of_table, r.reader FROM outbox_readers r WHERE starts_with(r.reader, 'group:')
        {{- if .Logs}}
        UNION
        SELECT l.table_name, o.log, 'group:' || substr(l.table_name, length(o.log) + 2)
          FROM unnest({{arg .Logs}}::text[]) o (log)
          JOIN (SELECT table_name FROM outbox_lanes UNION SELECT table_name FROM outbox_log_positions) l ON starts_with(l.table_name, o.log || '/')
        {{- end}}) g
 ORDER BY 2, 3
