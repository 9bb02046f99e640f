-- lease: gives every lane of the caller up, ends its enrolment, and returns how many lanes are left. $1 table, $2
-- owner. The epochs stay: the next owners raise them. A relay that gives a lane up has survived its trial there. A
-- lane whose row another session has locked is not waited for, and stays. In a lane without an owner, expires_at
-- is the time at which it was given up.
WITH gone AS (
    DELETE FROM outbox_relays WHERE table_name = $1 AND owner = $2
), given AS (
    UPDATE outbox_lanes l
       SET owner = NULL, expires_at = clock_timestamp(), trial_size = 0, trial_event = NULL
      FROM (SELECT table_name, lane FROM outbox_lanes WHERE table_name = $1 AND owner = $2 ORDER BY lane FOR UPDATE SKIP LOCKED) mine
     WHERE l.table_name = mine.table_name AND l.lane = mine.lane
    RETURNING l.lane
)
SELECT (SELECT count(*) FROM outbox_lanes WHERE table_name = $1 AND owner = $2) - (SELECT count(*) FROM given)
