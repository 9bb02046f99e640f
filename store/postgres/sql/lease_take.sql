-- lease: takes free or lapsed lanes up to the caller's share, and keeps those it has. $1 table, $2 owner, $3 time to
-- live in microseconds, $4 number of lanes, $5 whether the caller takes free lanes only, $6 whether it is leaving.
-- The share comes from the relays that are alive, in the order of their ids: all get the same number, the first ones
-- one more, and one that is leaving, which is not among them, none. A relay that yields because its sink is
-- unavailable gets none either while another relay is alive that reports no problem of its sinks or the table.
-- A lane has lapsed when its own time and its owner's are both over. So lease_join.sql renews all lanes of an owner by
-- one row, and an owner keeps the lanes whose rows somebody holds locked: nothing here waits for a row. A relay that is
-- leaving has no such row any more, and renews the lanes that it has not given up yet one by one.
-- Nobody's lanes lapse within a lease's time after the server's start: all relays were away from it, and the first to
-- come back would take everything from those that are alive, with what they have published and not settled. (BETWEEN,
-- because a clock that was set back is before that start.)
-- Renewals are written only when less than two thirds of the time are left: asking often costs no write. Or when more
-- than all of it is left: the server's clock was set back (or another server took over), and if the caller died now its
-- lanes would be nobody's until the old time came. Locks the lane rows it changes in lane order; the lowest free lanes
-- are taken, so that what a relay holds stays in few runs and falls to its workers evenly. Locks the rows of owners
-- that are gone, so that one that comes back at this moment waits and then sees what it has lost. clock_timestamp,
-- because now() would be from before the wait for its own enrolment. The epoch rises when a lane changes hands; a lane
-- that still had an owner was left by a crash. Index: the primary keys.
WITH alive AS MATERIALIZED (
    SELECT owner, row_number() OVER (ORDER BY owner) - 1 AS rank, count(*) OVER () AS relays
      FROM outbox_relays
     WHERE table_name = $1 AND (owner = $2 OR expires_at > clock_timestamp())
       AND (health -> 'yields' IS NULL
            OR NOT EXISTS (SELECT FROM outbox_relays h
                            WHERE h.table_name = $1 AND h.expires_at > clock_timestamp() AND h.health -> 'sinks' IS NULL
                              AND h.health -> 'table' IS NULL))
), share AS MATERIALIZED (
    SELECT $4::int / relays + CASE WHEN rank < $4::int % relays THEN 1 ELSE 0 END AS lanes FROM alive WHERE owner = $2
), gone AS MATERIALIZED (
    SELECT owner FROM outbox_relays
     WHERE table_name = $1 AND owner <> $2 AND expires_at <= clock_timestamp()
       FOR SHARE SKIP LOCKED
), candidate AS MATERIALIZED (
    SELECT l.table_name, l.lane, l.owner
      FROM outbox_lanes l
     WHERE l.table_name = $1
       AND (l.owner IS NULL
            OR l.owner = $2 AND ($6::boolean AND l.expires_at <= clock_timestamp() + $3::bigint * 2 / 3 * interval '1 microsecond'
                                 OR l.expires_at > clock_timestamp() + $3::bigint * interval '1 microsecond')
            OR NOT $5::boolean AND l.owner <> $2 AND l.expires_at <= clock_timestamp()
               AND clock_timestamp() NOT BETWEEN pg_postmaster_start_time() AND pg_postmaster_start_time() + $3::bigint * interval '1 microsecond'
               AND (l.owner IN (SELECT owner FROM gone)
                    OR l.owner NOT IN (SELECT owner FROM outbox_relays WHERE table_name = $1)))
     ORDER BY l.lane
       FOR UPDATE OF l SKIP LOCKED
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
