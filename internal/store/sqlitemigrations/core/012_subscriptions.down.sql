ALTER TABLE outbox_endpoints DROP COLUMN topics;
ALTER TABLE outbox_endpoints DROP COLUMN types;
