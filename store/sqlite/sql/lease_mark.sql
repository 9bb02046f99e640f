-- lease: what is known of a suspect lane. ?1 table, ?2 owner, ?3 lane, ?4 epoch, ?5 crashes, ?6 size of the trial, ?7
-- its event (NULL for none).
-- Changes only a lane that the caller still holds. Index: the primary key.
UPDATE outbox_lanes
   SET crashes = ?5, trial_size = ?6, trial_event = ?7
 WHERE table_name = ?1 AND lane = ?3 AND owner = ?2 AND epoch = ?4
