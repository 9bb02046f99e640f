-- adopt: whether tables have been adopted.
SELECT to_regclass('outbox_adopted') IS NOT NULL
