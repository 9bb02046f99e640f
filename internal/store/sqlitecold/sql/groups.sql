-- groups: the consumer groups that are the recorded reader of a table, and when each was last seen. Locks nothing.
-- Index: the primary keys.
SELECT g.table_name, g.table_name, substr(g.reader, 7),
       (SELECT max(seen.at)
          FROM (SELECT r.table_name, r.seen_at AS at FROM outbox_relays r
                UNION ALL
                SELECT l.table_name, l.expires_at FROM outbox_lanes l
                 WHERE NOT EXISTS (SELECT 1 FROM outbox_relays r WHERE r.table_name = l.table_name AND r.owner = l.owner)) seen
         WHERE seen.table_name = g.table_name)
  FROM outbox_readers g
 WHERE g.reader LIKE 'group:%'
 ORDER BY 2, 3
