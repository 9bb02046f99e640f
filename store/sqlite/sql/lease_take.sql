-- lease: renews the caller's lanes and takes free or lapsed ones up to its share. ?1 table, ?2 owner, ?3 now, ?4 what
-- it has must last beyond, ?5 now and its time to live, ?6 number of lanes, ?7 whether it may take lapsed ones.
-- Renewals are written only when less than two thirds of the time are left, or more than all of it: the clock was set
-- back, and if the caller died now its lanes would be nobody's until the old time came.
-- The lowest free lanes are taken, so that what a relay holds stays in few runs and falls to its workers evenly. The
-- epoch rises when a lane changes hands; one that still had an owner was left by a crash.
-- A relay that has itself lapsed takes none from others at this check: most likely somebody kept the file's write lock
-- for longer than a lease, and all lapsed together. The first to get the lock would take everything from relays that
-- are alive; at the next check they have had their turn. Index: the primary keys.
WITH {{template "share"}}
UPDATE outbox_lanes
   SET owner      = ?2,
       epoch      = epoch + (owner IS NOT ?2),
       crashes    = crashes + (owner IS NOT NULL AND owner <> ?2),
       expires_at = ?5
 WHERE table_name = ?1
   AND (owner = ?2 AND (expires_at <= ?4 OR expires_at > ?5)
        OR lane IN (SELECT l.lane
                      FROM outbox_lanes AS l
                     WHERE l.table_name = ?1 AND (l.owner IS NULL OR ?7 AND l.owner <> ?2 AND l.expires_at <= ?3)
                     ORDER BY l.lane
                     LIMIT max((SELECT lanes FROM share) - (SELECT count(*) FROM outbox_lanes WHERE table_name = ?1 AND owner = ?2), 0)))
