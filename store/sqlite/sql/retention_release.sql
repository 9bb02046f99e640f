-- retention: gives a table's maintenance up and records the run. Swept: it looked at every
-- row. Index: the primary key.
UPDATE outbox_maintenance
   SET owner = NULL, expires_at = NULL, rows = {{arg .Removed}}, swept_at = CASE WHEN {{arg .Swept}} THEN ran_at ELSE swept_at END
 WHERE table_name = {{arg .Name}} AND owner = {{arg .Owner}}
