-- lease: what the caller holds after lease_take.sql, in the same transaction; its share, how many lanes the table has,
-- and what is paused of it: topics, destinations, or, with neither, all of it. $1 table, $2 owner, $3 number of lanes,
-- $4 the table whose events it has, which of outbox_deliveries is another. One row without a lane if it holds none. A
-- lane is held until its own time and its owner's are both over. Locks nothing. Index: the primary keys; outbox_pauses
-- has a few rows, or none.
SELECT l.lane, coalesce(l.epoch, 0), coalesce(l.crashes, 0), coalesce(l.trial_size, 0), l.trial_event,
       coalesce((extract(epoch FROM greatest(l.expires_at, r.expires_at) - clock_timestamp()) * 1000000)::bigint, 0) AS remaining,
       s.share, (SELECT count(*) FROM outbox_lanes WHERE table_name = $1), p.topics, p.destinations
  FROM (SELECT CASE WHEN count(*) FILTER (WHERE owner = $2) = 0 THEN 0 -- it is leaving or yields
                    ELSE $3::int / count(*) + CASE WHEN count(*) FILTER (WHERE owner < $2) < $3::int % count(*) THEN 1 ELSE 0 END END::int AS share
          FROM outbox_relays
         WHERE table_name = $1 AND (owner = $2 OR expires_at > clock_timestamp())
           AND (health -> 'yields' IS NULL -- see lease_take.sql
                OR NOT EXISTS (SELECT FROM outbox_relays h
                                WHERE h.table_name = $1 AND h.expires_at > clock_timestamp() AND h.health -> 'sinks' IS NULL
                                  AND h.health -> 'table' IS NULL))) s
 CROSS JOIN (SELECT array_agg(topic ORDER BY topic, destination) AS topics,
                    array_agg(destination ORDER BY topic, destination) AS destinations
               FROM (SELECT DISTINCT topic, destination FROM outbox_pauses WHERE table_name IN ('', $1, $4)) each) p
  LEFT JOIN outbox_lanes l ON l.table_name = $1 AND l.owner = $2
  LEFT JOIN outbox_relays r ON r.table_name = $1 AND r.owner = $2
 ORDER BY l.lane
