-- lease: records the caller's reader if the table has none. $1 table, $2 reader. If the table has another reader, the
-- INSERT fails on the primary key, and the transaction takes and renews no lane. Writes nothing if the reader is
-- recorded. Two processes that start at the same moment: the second waits for the first. Takes ROW EXCLUSIVE on
-- outbox_readers until the transaction ends, for which reader_lock.sql waits. Index: the primary key.
INSERT INTO outbox_readers (table_name, reader)
SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM outbox_readers WHERE table_name = $1 AND reader = $2)
