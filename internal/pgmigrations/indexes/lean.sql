-- For throughput: each holds only the rows that an operator looks for by it, those that failed; created_at, which only grows, is a block range index.
CREATE INDEX idx_outbox_status        ON outbox_events (status, next_retry_at) WHERE status IN ('FAILED', 'DEAD');
CREATE INDEX idx_outbox_tenant_status ON outbox_events (tenant_id, status) WHERE status IN ('FAILED', 'DEAD');
CREATE INDEX idx_outbox_created       ON outbox_events USING brin (created_at);
CREATE INDEX idx_outbox_aggregate     ON outbox_events (aggregate_type, aggregate_id) WHERE status IN ('FAILED', 'DEAD');
CREATE INDEX idx_outbox_topic         ON outbox_events (event_topic) WHERE status IN ('FAILED', 'DEAD');
