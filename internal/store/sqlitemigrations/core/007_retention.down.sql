DROP TABLE outbox_archive;
DROP TABLE outbox_maintenance;
