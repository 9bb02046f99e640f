-- reader: waits for all transactions that are taking or renewing lanes, and keeps further ones waiting. They hold ROW
-- EXCLUSIVE on the table (lease_reader.sql), so each one sees either the former reader, and is seen by
-- reader_alive.sql, or the new one. Needs UPDATE on the table.
LOCK TABLE outbox_readers IN SHARE ROW EXCLUSIVE MODE
