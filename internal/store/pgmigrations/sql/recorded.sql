-- adopt: what has been done so far.
SELECT table_name, object FROM outbox_adopted ORDER BY step
