-- As core/007_tenant_claim.
CREATE INDEX IF NOT EXISTS event_outbox_tenants ON event_outbox (app_id, position) WHERE status = 'pending';
