-- lease: gives a lane up at once. ?1 table, ?2 owner, ?3 lane, ?4 epoch, ?5 now. The epoch stays: the next owner
-- raises it. A relay that gives a lane up has survived its trial there. In a lane without an owner, expires_at is
-- the time at which it was given up. Index: the primary key.
UPDATE outbox_lanes
   SET owner = NULL, expires_at = ?5, trial_size = 0, trial_event = NULL
 WHERE table_name = ?1 AND lane = ?3 AND owner = ?2 AND epoch = ?4
