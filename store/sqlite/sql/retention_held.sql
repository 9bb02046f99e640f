-- retention: does the caller hold a table's maintenance? In the write transaction of
-- retention_remove.sql. Index: the primary key.
SELECT EXISTS (SELECT 1 FROM outbox_maintenance m WHERE m.table_name = {{arg .Name}} AND m.owner = {{arg .Owner}} AND m.expires_at > {{arg .Now}})
