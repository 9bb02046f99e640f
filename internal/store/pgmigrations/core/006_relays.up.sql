-- Additive, in no seed: the relays that are alive, so that they can share the lanes of a table among them; and what is known of a lane at
-- which relays die.

CREATE TABLE IF NOT EXISTS outbox_relays (
    table_name TEXT        NOT NULL,
    owner      UUID        NOT NULL,   -- as in outbox_lanes
    name       TEXT        NOT NULL,   -- host and process, for people
    joined_at  TIMESTAMPTZ NOT NULL DEFAULT now(),
    expires_at TIMESTAMPTZ NOT NULL,   -- by the database's clock; who does not renew is no relay any more
    PRIMARY KEY (table_name, owner)
) WITH (
    fillfactor = 30,                   -- as on outbox_lanes
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold    = 500
);

-- How often in a row a lane was taken over from a relay that vanished without having finished a turn on it, and the small batch that was begun
-- to find out why: how many of the lane's oldest rows, and of a single one its event id.
ALTER TABLE outbox_lanes
    ADD COLUMN IF NOT EXISTS crashes     INT NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS trial_size  INT NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS trial_event UUID;
