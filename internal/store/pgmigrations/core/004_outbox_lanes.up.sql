-- Additive, in no seed: the lane leases. A relay reads and settles only the lanes it holds; one holder per lane
-- is what keeps a key's order with many relays, without a lock or a claim write per event. The relay makes the
-- rows of a table when it first serves it.

CREATE TABLE IF NOT EXISTS outbox_lanes (
    table_name TEXT     NOT NULL,
    lane       SMALLINT NOT NULL CONSTRAINT outbox_lanes_lane_check CHECK (lane BETWEEN 0 AND 63),
    owner      UUID,                        -- the holding relay; NULL: free
    epoch      BIGINT   NOT NULL DEFAULT 0, -- rises at every take-over; a settle under an older one changes nothing
    expires_at TIMESTAMPTZ,                 -- by the database's clock
    PRIMARY KEY (table_name, lane)
) WITH (
    -- A few hundred rows, each renewed every few seconds for ever. No renewal touches an indexed column, so with
    -- room on its page it is a heap-only update and pruned by the next reader.
    fillfactor = 30,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold    = 500
);
