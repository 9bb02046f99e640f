-- lanes: the relays of a table and what each should hold, as lease_held.sql reckons it. ?1 table, ?2 number of lanes,
-- ?3 now. The share of one that is gone is 0. Locks nothing.
-- Index: the primary keys.
SELECT r.owner, r.name, r.joined_at, r.expires_at,
       (SELECT count(*) FROM outbox_lanes l WHERE l.table_name = ?1 AND l.owner = r.owner AND l.expires_at > ?3),
       CASE WHEN r.expires_at <= ?3 THEN 0
            ELSE (SELECT ?2 / count(*) + (count(*) FILTER (WHERE o.owner < r.owner) < ?2 % count(*))
                    FROM outbox_relays o WHERE o.table_name = ?1 AND o.expires_at > ?3)
       END
  FROM outbox_relays r
 WHERE r.table_name = ?1
 ORDER BY r.owner
