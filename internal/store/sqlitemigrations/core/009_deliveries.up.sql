-- Additive, in no seed: what sinks of a table with routes have not taken yet. As core/013_deliveries of PostgreSQL.

CREATE TABLE outbox_deliveries (
    position       INTEGER PRIMARY KEY AUTOINCREMENT,   -- the order within a key and a sink
    outbox_table   TEXT    NOT NULL,   -- the event's, as in outbox_lanes
    sink           TEXT    NOT NULL,
    queue          TEXT    GENERATED ALWAYS AS (outbox_table || '/' || sink) STORED NOT NULL,
    lane           INTEGER NOT NULL,   -- the event's, in its table
    order_key      TEXT,               -- likewise; NULL: ordered against nothing

    event_id       TEXT    NOT NULL,
    generation     INTEGER NOT NULL DEFAULT 0,
    destinations   TEXT    NOT NULL CHECK (json_valid(destinations)),   -- an array of one

    event_topic    TEXT    NOT NULL,
    event_key      TEXT,
    aggregate_type TEXT,
    tenant_id      TEXT,
    source         TEXT,
    schema_id      TEXT,
    schema_version INTEGER NOT NULL DEFAULT 1,
    sequence       INTEGER,
    payload        TEXT    NOT NULL CHECK (json_valid(payload)),
    metadata       TEXT    CHECK (metadata IS NULL OR json_valid(metadata)),
    occurred_at    TEXT,
    written_at     TEXT    NOT NULL,   -- the event

    -- pending -> delivered | dead; dead -> pending only by an operator's replay.
    status         TEXT    NOT NULL DEFAULT 'pending' CONSTRAINT outbox_deliveries_status_check CHECK (status IN ('pending', 'delivered', 'dead')),
    attempts       INTEGER NOT NULL DEFAULT 0,
    next_retry_at  TEXT    CHECK (next_retry_at IS NULL OR next_retry_at GLOB '????-??-??T??:??:??.??????Z'),   -- claims compare it, as a text
    last_error     TEXT,
    error_history  TEXT    CHECK (error_history IS NULL OR json_valid(error_history)),
    created_at     TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    delivered_at   TEXT
) STRICT;

-- The claim of a sink's relay; whether a lane owes a sink anything; what is dead; which keys wait; an event's deliveries, each there once; retention.
CREATE INDEX outbox_deliveries_undelivered ON outbox_deliveries (queue, position) WHERE status = 'pending';
CREATE INDEX outbox_deliveries_lanes       ON outbox_deliveries (queue, lane) WHERE status = 'pending';
CREATE INDEX outbox_deliveries_dead        ON outbox_deliveries (queue) WHERE status = 'dead';
CREATE INDEX outbox_deliveries_waiting     ON outbox_deliveries (next_retry_at) WHERE next_retry_at IS NOT NULL;
CREATE UNIQUE INDEX outbox_deliveries_once ON outbox_deliveries (event_id, queue, generation, destinations);
CREATE INDEX outbox_deliveries_delivered   ON outbox_deliveries (delivered_at) WHERE delivered_at IS NOT NULL;
