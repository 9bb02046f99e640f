ALTER TABLE outbox_audit DROP COLUMN IF EXISTS db_user;
