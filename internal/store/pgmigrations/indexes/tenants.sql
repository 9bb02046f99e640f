-- As core/002 makes it: by this index the tenants share a claim. A table of one tenant has nothing of it.
CREATE INDEX outbox_events_tenants ON outbox_events (tenant_id COLLATE "C", position) WHERE status IN ('NEW', 'FAILED');
