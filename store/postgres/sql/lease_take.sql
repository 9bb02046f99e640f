-- lease: renews the caller's lanes and takes free or lapsed ones up to its share. $1 table, $2 owner, $3 time to live in microseconds, $4 number of lanes.
-- The share comes from the relays that are alive, in the order of their ids: all get the same number, the first ones one more, and one that is leaving, which is not
-- among them, none. Renewals are written only when less than two thirds of the time are left: asking often costs no write. Or when more than all of it is left: the
-- server's clock was set back (or another server took over), and if the caller died now its lanes would be nobody's until the old time came.
-- Locks the lane rows it changes in lane order, so that two relays cannot deadlock; the lowest free lanes are taken, so that what a relay holds stays in few
-- runs and falls to its workers evenly. clock_timestamp, because now() would be from before the wait for the lock. The epoch rises when a
-- lane changes hands; a lane that still had an owner was left by a crash.
-- Index: the primary keys.
WITH alive AS MATERIALIZED (
    SELECT owner, row_number() OVER (ORDER BY owner) - 1 AS rank, count(*) OVER () AS relays
      FROM outbox_relays
     WHERE table_name = $1 AND (owner = $2 OR expires_at > clock_timestamp())
), share AS MATERIALIZED (
    SELECT $4::int / relays + CASE WHEN rank < $4::int % relays THEN 1 ELSE 0 END AS lanes FROM alive WHERE owner = $2
), candidate AS MATERIALIZED (
    SELECT table_name, lane, owner, expires_at
      FROM outbox_lanes
     WHERE table_name = $1
       AND (owner IS NULL OR expires_at <= clock_timestamp()
            OR owner = $2 AND (expires_at <= clock_timestamp() + $3::bigint * 2 / 3 * interval '1 microsecond'
                               OR expires_at > clock_timestamp() + $3::bigint * interval '1 microsecond'))
     ORDER BY lane
       FOR UPDATE
), kept AS (
    SELECT count(*) AS lanes FROM outbox_lanes WHERE table_name = $1 AND owner = $2
), mine AS (
    SELECT table_name, lane FROM candidate WHERE owner = $2
    UNION ALL
    (SELECT table_name, lane FROM candidate
      WHERE owner IS DISTINCT FROM $2
      ORDER BY lane
      LIMIT greatest((SELECT lanes FROM share) - (SELECT lanes FROM kept), 0))
)
UPDATE outbox_lanes l
   SET owner      = $2,
       epoch      = l.epoch + CASE WHEN l.owner = $2 THEN 0 ELSE 1 END,
       crashes    = l.crashes + CASE WHEN l.owner = $2 OR l.owner IS NULL THEN 0 ELSE 1 END,
       expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
  FROM mine
 WHERE l.table_name = mine.table_name AND l.lane = mine.lane
