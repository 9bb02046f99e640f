-- retention: gives a table's maintenance up and records the run. ?1 table, ?2 owner, ?3 rows removed, ?4 whether it
-- looked at every row. Index: the primary key.
UPDATE outbox_maintenance
   SET owner = NULL, expires_at = NULL, rows = ?3, swept_at = CASE WHEN ?4 THEN ran_at ELSE swept_at END
 WHERE table_name = ?1 AND owner = ?2
