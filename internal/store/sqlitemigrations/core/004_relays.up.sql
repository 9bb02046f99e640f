-- Additive, in no seed: the lane leases and the relays that share them. core/004_relays of PostgreSQL, which says why. Several processes on
-- one file share the lanes as several hosts do there.

CREATE TABLE outbox_lanes (
    table_name  TEXT    NOT NULL,
    lane        INTEGER NOT NULL CONSTRAINT outbox_lanes_lane_check CHECK (lane BETWEEN 0 AND 63),
    owner       TEXT,                         -- the holding relay; NULL: free
    epoch       INTEGER NOT NULL DEFAULT 0,   -- rises at every take-over; a settle under an older one changes nothing
    expires_at  TEXT,                         -- by the machine's clock
    crashes     INTEGER NOT NULL DEFAULT 0,
    trial_size  INTEGER NOT NULL DEFAULT 0,
    trial_event TEXT,
    PRIMARY KEY (table_name, lane)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox_relays (
    table_name TEXT NOT NULL,
    owner      TEXT NOT NULL,   -- as in outbox_lanes
    name       TEXT NOT NULL,   -- host and process, for people
    joined_at  TEXT NOT NULL,
    expires_at TEXT NOT NULL,   -- who does not renew is no relay any more
    health TEXT,                -- what hinders it: {"table": reason, "sinks": {name: reason}}; NULL: nothing
    health_since TEXT,          -- when it began to say so
    serves TEXT,                -- the sinks and routes that it has for the table, one a line; NULL: unknown
    paused TEXT,                -- what it obeys of outbox_pauses, as JSON: nothing of that is in flight; NULL: nothing is paused
    seen_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),   -- its last renewal
    PRIMARY KEY (table_name, owner)
) STRICT, WITHOUT ROWID;

-- The reader of each table: "sinks", or one consumer group ("group:NAME"). The first process that leases lanes of the table
-- records its own reader; a process with another one is refused. `outbox lanes reader` changes it.
CREATE TABLE outbox_readers (
    table_name TEXT NOT NULL PRIMARY KEY,   -- as in outbox_lanes
    reader     TEXT NOT NULL,
    since      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What operators have paused.
CREATE TABLE outbox_pauses (
    table_name  TEXT NOT NULL,               -- as in outbox_lanes; '': every table
    topic       TEXT NOT NULL,               -- a name, or a pattern in which * stands for any text; '': every topic
    destination TEXT NOT NULL DEFAULT '',    -- likewise; '': every destination
    reason      TEXT NOT NULL,
    actor       TEXT NOT NULL,
    paused_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    PRIMARY KEY (table_name, topic, destination),
    CHECK (topic = '' OR destination = '')
) STRICT;

-- What sinks of a table with routes have not taken yet.
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
