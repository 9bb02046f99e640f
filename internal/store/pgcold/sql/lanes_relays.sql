-- lanes: the relays of a table and what each should hold, as lease_held.sql reckons it. The share of one that is gone
-- is 0. Locks nothing.
-- Index: the primary keys.
SELECT r.owner, r.name, r.joined_at, r.expires_at, clock_timestamp(),
       (SELECT count(*) FROM outbox_lanes l WHERE l.table_name = {{arg .Leased}} AND l.owner = r.owner AND greatest(l.expires_at, r.expires_at) > clock_timestamp()) AS lanes,
       CASE WHEN r.expires_at <= clock_timestamp() THEN 0
            ELSE (SELECT {{arg .Lanes}}::int / count(*) + CASE WHEN count(*) FILTER (WHERE o.owner < r.owner) < {{arg .Lanes}}::int % count(*) THEN 1 ELSE 0 END
                    FROM outbox_relays o WHERE o.table_name = {{arg .Leased}} AND o.expires_at > clock_timestamp())
       END AS share, coalesce(r.serves, '') AS serves, r.seen_at
  FROM outbox_relays r
 WHERE r.table_name = {{arg .Leased}}
 ORDER BY r.owner
