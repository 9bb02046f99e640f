-- lease: gives every lane of the caller up, after lease_quit.sql. ?1 table, ?2 owner, ?3 now. The epochs stay: the
-- next owners raise them. In a lane without an owner, expires_at is the time at which it was given up. Index: the
-- primary key.
UPDATE outbox_lanes
   SET owner = NULL, expires_at = ?3, trial_size = 0, trial_event = NULL
 WHERE table_name = ?1 AND owner = ?2
