-- reader: the reader that a table has recorded, if any. Locks nothing. Index: the primary key.
SELECT reader FROM outbox_readers WHERE table_name = {{arg .Leased}}
