-- Additive, in no seed: the time of archiving is part of the archive's key. An event may be archived again at its position, with other content: an archived row is put
-- back by hand, or a mapped table gives a position out again. The second row was not stored, because of the first, and then deleted.
-- Nobody but retention writes the table, so nobody else waits while the index is built anew.
ALTER TABLE outbox_archive DROP CONSTRAINT IF EXISTS outbox_archive_pkey, ADD PRIMARY KEY (table_name, id, position, archived_at);
