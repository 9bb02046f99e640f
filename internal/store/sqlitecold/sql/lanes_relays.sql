-- lanes: the relays of a table and what each should hold, as lease_held.sql reckons it. The share of one that is gone
-- is 0. Locks nothing.
-- Index: the primary keys.
SELECT r.owner, r.name, r.joined_at, r.expires_at, {{arg .Now}},
       (SELECT count(*) FROM outbox_lanes l WHERE l.table_name = {{arg .Leased}} AND l.owner = r.owner AND l.expires_at > {{arg .Now}}),
       CASE WHEN r.expires_at <= {{arg .Now}} THEN 0
            ELSE (SELECT {{arg .Lanes}} / count(*) + (count(*) FILTER (WHERE o.owner < r.owner) < {{arg .Lanes}} % count(*))
                    FROM outbox_relays o WHERE o.table_name = {{arg .Leased}} AND o.expires_at > {{arg .Now}})
       END, coalesce(r.serves, ''), r.seen_at
  FROM outbox_relays r
 WHERE r.table_name = {{arg .Leased}}
 ORDER BY r.owner
