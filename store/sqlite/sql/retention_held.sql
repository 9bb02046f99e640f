-- retention: does the caller hold a table's maintenance? ?1 table, ?2 owner, ?3 now. In the write transaction of
-- retention_remove.sql. Index: the primary key.
SELECT EXISTS (SELECT 1 FROM outbox_maintenance m WHERE m.table_name = ?1 AND m.owner = ?2 AND m.expires_at > ?3)
