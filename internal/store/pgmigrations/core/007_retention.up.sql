-- Source: FR-007 (seed 000: published rows are archived after 7 days) and plan 05-01 (seed 002: purges). Additive, in no seed: who
-- runs retention, and where the archived rows of crawl_outbox, outbox_events and mapped tables go.

-- One row a table that something is removed from. Held only while a run is under way.
CREATE TABLE IF NOT EXISTS outbox_maintenance (
    table_name TEXT PRIMARY KEY,
    owner      UUID,          -- who is at work; NULL: nobody
    expires_at TIMESTAMPTZ,   -- by the database's clock
    ran_at     TIMESTAMPTZ,   -- when the last run began
    rows       BIGINT,        -- that it removed
    swept_at   TIMESTAMPTZ    -- when the last run began that looked at every row
) WITH (fillfactor = 30, autovacuum_analyze_threshold = 1000000);   -- as outbox_relays

-- The key keeps a row that is archived twice once. An event may be archived again at its position, with other content: an
-- archived row is put back by hand, or a mapped table gives a position out again. Hence the time of archiving. The key is
-- ordered so that UUIDv7 ids are appended.
CREATE TABLE IF NOT EXISTS outbox_archive (
    table_name  TEXT        NOT NULL,
    id          UUID        NOT NULL,
    position    BIGINT      NOT NULL,
    archived_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    row         JSONB       NOT NULL,   -- as to_jsonb made it: jsonb_populate_record gives it back
    PRIMARY KEY (table_name, id, position, archived_at)
);
-- For whoever removes what is older than years. Rows come in its order, so it costs next to nothing.
CREATE INDEX IF NOT EXISTS outbox_archive_archived_at ON outbox_archive USING brin (archived_at);
