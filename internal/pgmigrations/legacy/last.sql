-- legacy: where an interrupted upgrade left off numbering. Reads the whole table once.
SELECT coalesce(max(position), 0) FROM {{.Table}}
