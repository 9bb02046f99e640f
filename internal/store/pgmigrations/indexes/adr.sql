-- As ADR-004 writes them: its queries are served on delivered rows too.
CREATE INDEX idx_outbox_status        ON outbox_events (status, next_retry_at);
CREATE INDEX idx_outbox_tenant_status ON outbox_events (tenant_id, status);
CREATE INDEX idx_outbox_created       ON outbox_events (created_at);
CREATE INDEX idx_outbox_aggregate     ON outbox_events (aggregate_type, aggregate_id);
CREATE INDEX idx_outbox_topic         ON outbox_events (event_topic);
