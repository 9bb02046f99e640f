ALTER TABLE outbox_relays DROP COLUMN IF EXISTS health, DROP COLUMN IF EXISTS health_since;
