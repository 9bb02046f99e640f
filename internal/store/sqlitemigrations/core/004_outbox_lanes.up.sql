-- Additive, in no seed: the lane leases and the relays that share them. core/004_outbox_lanes and core/006_relays of PostgreSQL, which say why. Several processes on
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
    PRIMARY KEY (table_name, owner)
) STRICT, WITHOUT ROWID;
