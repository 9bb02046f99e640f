-- lease: renews the caller's lanes and takes every free or lapsed one. $1 table, $2 owner, $3 time to live in microseconds.
-- Locks the lane rows in lane order, so that two relays cannot deadlock. Only the database's clock counts; clock_timestamp, because
-- now() would be from before the wait for the lock. The epoch rises when a lane changes hands.
-- Index: the primary key.
UPDATE outbox_lanes l
   SET owner      = $2,
       epoch      = l.epoch + CASE WHEN l.owner = $2 THEN 0 ELSE 1 END,
       expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
  FROM (SELECT table_name, lane
          FROM outbox_lanes
         WHERE table_name = $1
           AND (owner = $2 OR owner IS NULL OR expires_at <= clock_timestamp())
         ORDER BY lane
           FOR UPDATE) mine
 WHERE l.table_name = mine.table_name AND l.lane = mine.lane
RETURNING l.lane, l.epoch
