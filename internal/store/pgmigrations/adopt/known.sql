-- adopt: whether something was recorded. $1 table, $2 what.
SELECT EXISTS (SELECT FROM outbox_adopted WHERE table_name = $1 AND object = $2)
