DROP INDEX IF EXISTS event_outbox_tenants;
