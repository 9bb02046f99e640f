-- reader: gives a table another reader, after reader_lock.sql. Locks its row. Index: the primary key.
INSERT INTO outbox_readers (table_name, reader, since) VALUES ({{arg .Leased}}, {{arg .Reader}}, {{template "now" .}})
ON CONFLICT (table_name) DO UPDATE SET reader = excluded.reader, since = excluded.since
