-- lease: records the caller's reader if the table has none, and returns the table's reader. ?1 table, ?2 reader, ?3
-- now. Index: the primary key.
INSERT INTO outbox_readers (table_name, reader, since) VALUES (?1, ?2, ?3)
ON CONFLICT (table_name) DO UPDATE SET reader = outbox_readers.reader
RETURNING reader
