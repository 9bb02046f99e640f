-- lease: ends the caller's enrolment while it still holds lanes, so that the others' shares grow. $1 table, $2 owner.
-- Locks the caller's row. Index: the primary key.
DELETE FROM outbox_relays WHERE table_name = $1 AND owner = $2
