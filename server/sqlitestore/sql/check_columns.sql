-- check: the columns that a table has. ?1 its name. No rows: there is no such table. Locks nothing.
SELECT name FROM pragma_table_xinfo(?1)
