DROP TABLE IF EXISTS outbox_archive;
DROP TABLE IF EXISTS outbox_maintenance;
