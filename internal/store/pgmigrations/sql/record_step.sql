-- adopt: one thing that is about to be added, once. $1 table, $2 what, $3 what takes it away again.
INSERT INTO outbox_adopted (table_name, object, undo)
SELECT $1, $2, $3 WHERE NOT EXISTS (SELECT FROM outbox_adopted WHERE table_name = $1 AND object = $2)
