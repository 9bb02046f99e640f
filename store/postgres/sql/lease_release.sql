-- lease: gives lanes up at once. $1 table, $2 owner, $3 lanes, $4 epochs. The epoch stays: the next owner raises it. Whoever gives a
-- lane up has survived what it was trying there.
UPDATE outbox_lanes l
   SET owner = NULL, expires_at = NULL, trial_size = 0, trial_event = NULL
  FROM unnest($3::smallint[], $4::bigint[]) AS mine (lane, epoch)
 WHERE l.table_name = $1 AND l.lane = mine.lane AND l.owner = $2 AND l.epoch = mine.epoch
