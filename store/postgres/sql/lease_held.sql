-- lease: what the caller holds after lease_take.sql, in the same transaction; its share, and how many lanes the table
-- has. $1 table, $2 owner, $3 number of lanes. One row without a lane if it holds none. A lane is held until its own
-- time and its owner's are both over. Locks nothing. Index: the primary keys.
SELECT l.lane, coalesce(l.epoch, 0), coalesce(l.crashes, 0), coalesce(l.trial_size, 0), l.trial_event,
       coalesce((extract(epoch FROM greatest(l.expires_at, r.expires_at) - clock_timestamp()) * 1000000)::bigint, 0) AS remaining,
       s.share, (SELECT count(*) FROM outbox_lanes WHERE table_name = $1)
  FROM (SELECT CASE WHEN count(*) FILTER (WHERE owner = $2) = 0 THEN 0 -- it is leaving
                    ELSE $3::int / count(*) + CASE WHEN count(*) FILTER (WHERE owner < $2) < $3::int % count(*) THEN 1 ELSE 0 END END::int AS share
          FROM outbox_relays
         WHERE table_name = $1 AND (owner = $2 OR expires_at > clock_timestamp())) s
  LEFT JOIN outbox_lanes l ON l.table_name = $1 AND l.owner = $2
  LEFT JOIN outbox_relays r ON r.table_name = $1 AND r.owner = $2
 ORDER BY l.lane
