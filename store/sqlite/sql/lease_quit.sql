-- lease: ends the caller's enrolment; lanes that it still holds stay its own. ?1 table, ?2 owner. Index: the primary
-- key.
DELETE FROM outbox_relays WHERE table_name = ?1 AND owner = ?2
