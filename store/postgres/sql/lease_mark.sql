-- lease: what is known of suspect lanes. $1 table, $2 owner, $3 lanes, $4 epochs, $5 crashes, $6 sizes of the trials,
-- $7 their events (NULL for none).
-- Changes only lanes that the caller still holds. Index: the primary key.
UPDATE outbox_lanes l
   SET crashes = mark.crashes, trial_size = mark.size, trial_event = mark.event
  FROM unnest($3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::uuid[]) AS mark (lane, epoch, crashes, size, event)
 WHERE l.table_name = $1 AND l.lane = mark.lane AND l.owner = $2 AND l.epoch = mark.epoch
