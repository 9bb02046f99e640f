-- lease: gives lanes up at once. $1 table, $2 owner, $3 lanes, $4 epochs. The epoch stays: the next owner raises
-- it. A relay that gives a lane up has survived its trial there. A lane whose row another session has locked is
-- not waited for, and keeps its owner. In a lane without an owner, expires_at is the time at which it was given
-- up.
UPDATE outbox_lanes l
   SET owner = NULL, expires_at = clock_timestamp(), trial_size = 0, trial_event = NULL
  FROM (SELECT l.table_name, l.lane
          FROM unnest($3::smallint[], $4::bigint[]) AS mine (lane, epoch)
          JOIN outbox_lanes l ON l.table_name = $1 AND l.lane = mine.lane
         WHERE l.owner = $2 AND l.epoch = mine.epoch
         ORDER BY l.lane
           FOR UPDATE OF l SKIP LOCKED) gone
 WHERE l.table_name = gone.table_name AND l.lane = gone.lane
