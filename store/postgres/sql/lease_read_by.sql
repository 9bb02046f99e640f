-- lease: the reader that a table has. $1 table. Locks nothing. Index: the primary key.
SELECT reader FROM outbox_readers WHERE table_name = $1
