-- adopt: the newest row, in a transaction that has waited for all writers: no lower id is uncommitted.
SELECT coalesce(max(id), 0) FROM {{.Table}}
