-- adopt: one thing that is about to be added. $1 table, $2 what, $3 what takes it away again.
INSERT INTO outbox_adopted (table_name, object, undo) VALUES ($1, $2, $3)
