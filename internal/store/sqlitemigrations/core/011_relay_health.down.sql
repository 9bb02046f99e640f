ALTER TABLE outbox_relays DROP COLUMN health;
ALTER TABLE outbox_relays DROP COLUMN health_since;
