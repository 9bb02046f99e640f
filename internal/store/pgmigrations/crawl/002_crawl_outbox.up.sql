-- Source: FR-007 (seed 000, lines 46-58): the transient publishing queue beside the log; and FR-005 (seed 003,
-- lines 55 and 61), which was written after a rename of crawl to run and calls this table run_outbox.
-- Additive: the columns below the line, the indexes the claim needs, and the view.

CREATE TABLE IF NOT EXISTS crawl_outbox (
    id            BIGSERIAL PRIMARY KEY,
    crawl_id      UUID        NOT NULL REFERENCES crawl_runs (id) ON DELETE CASCADE,
    event_type    VARCHAR(50) NOT NULL,
    payload       JSONB       NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    published_at  TIMESTAMPTZ,

    -- ---- additive; what each is for: core/002_outbox_events. The key is crawl_id, its order that of id. ----
    event_id      UUID NOT NULL DEFAULT outbox_uuidv7(), -- not unique: an index here would be paid at every settle
    seq           BIGINT,                                -- of the log; NULL when the row came by plain SQL
    retry_count   INT NOT NULL DEFAULT 0,
    next_retry_at TIMESTAMPTZ,
    error_message TEXT,
    error_history JSONB,
    delivered_to  JSONB,
    generation    SMALLINT NOT NULL DEFAULT 0
) WITH (
    -- As on outbox_events.
    autovacuum_vacuum_scale_factor  = 0.01,
    autovacuum_vacuum_threshold     = 10000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_limit    = 2000
);

CREATE INDEX IF NOT EXISTS idx_crawl_outbox_unpublished ON crawl_outbox (published_at, id) WHERE published_at IS NULL;
CREATE INDEX IF NOT EXISTS idx_crawl_outbox_crawl_id ON crawl_outbox (crawl_id);

-- The claim. Beside the seed's index, because FR-005's poll (ORDER BY id) took 79-235 ms on that one right after a
-- 100,000-row backlog had drained, and 22 ms once, then 0.6 ms, on this one (PostgreSQL 15; the seed allows 50 ms).
CREATE INDEX IF NOT EXISTS crawl_outbox_undelivered ON crawl_outbox (id) WHERE published_at IS NULL;
CREATE INDEX IF NOT EXISTS crawl_outbox_waiting ON crawl_outbox (next_retry_at) WHERE next_retry_at IS NOT NULL;

-- Simple enough to be updatable by itself: FR-005's SELECT and UPDATE run on it word for word.
-- One that is there stays: where a table run_outbox became crawl_outbox, it has all columns that the table had.
DO $do$
BEGIN
    IF to_regclass('run_outbox') IS NULL THEN
        CREATE VIEW run_outbox AS
            SELECT id, crawl_id AS run_id, event_type, payload, created_at, published_at FROM crawl_outbox;
    END IF;
END
$do$;
