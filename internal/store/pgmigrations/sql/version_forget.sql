-- migrate: takes a set's version away, before another is recorded in the same transaction. Locks the table.
TRUNCATE {table}
