CREATE TABLE outbox_events (
    -- ä¸»é”®å’Œå¹‚ç‰æ€§
    id UUID PRIMARY KEY,

    -- äº‹ä»¶åŸºç¡€ä¿¡æ¯ï¼ˆä¸ DomainEvent ä¿æŒä¸€è‡´ï¼‰
    event_topic VARCHAR(150) NOT NULL,        -- ä¸ DomainEvent.topic ä¸€è‡´
    occurred_at TIMESTAMP NOT NULL,           -- äº‹ä»¶å‘ç”Ÿæ—¶é—´
    schema_id VARCHAR(128),                   -- Schema ID
    schema_version INT NOT NULL DEFAULT 1,   -- ç»Ÿä¸€çš„ç‰ˆæœ¬å—æ®µ

    -- èšåˆæ ¹ä¿¡æ¯
    aggregate_id VARCHAR(128),                -- å…¼å®¹ UUID å’Œå—ç¬¦ä¸²
    aggregate_type VARCHAR(100),              -- èšåˆç±»å‹ (Product, Order, etc.)

    -- å¤šç§Ÿæˆ·å’Œè·¯ç”±
    tenant_id VARCHAR(64) NOT NULL DEFAULT 'default',
    source_bc VARCHAR(50) NOT NULL,          -- æºè¾¹ç•Œä¸Šä¸‹æ–‡
    destination_topics JSONB,                -- ç›®æ ‡ topicsï¼ˆå¯é€‰ï¼‰

    -- äº‹ä»¶æ•°æ®
    payload JSONB NOT NULL,                   -- äº‹ä»¶æ•°æ®
    metadata JSONB,                          -- å…ƒæ•°æ®ï¼ˆtrace_id, user_id, etc.ï¼‰

    -- çŠ¶æ€ç®¡ç†
    status VARCHAR(10) NOT NULL DEFAULT 'NEW',    -- NEW, SENT, FAILED, DEAD
    retry_count INT NOT NULL DEFAULT 0,
    next_retry_at TIMESTAMP,                  -- ä¸‹æ¬¡é‡è¯•æ—¶é—´
    error_message TEXT,                       -- é”™è¯¯ä¿¡æ¯

    -- æ—¶é—´æˆ³
    created_at TIMESTAMP NOT NULL DEFAULT NOW(),
    processed_at TIMESTAMP                    -- å¤„ç†å®Œæˆæ—¶é—´
);

-- ç´¢å¼•ä¼˜åŒ–
CREATE INDEX idx_outbox_status ON outbox_events (status, next_retry_at);
CREATE INDEX idx_outbox_tenant_status ON outbox_events (tenant_id, status);
CREATE INDEX idx_outbox_created ON outbox_events (created_at);
CREATE INDEX idx_outbox_aggregate ON outbox_events (aggregate_type, aggregate_id);
CREATE INDEX idx_outbox_topic ON outbox_events (event_topic);
