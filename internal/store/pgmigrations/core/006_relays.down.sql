ALTER TABLE outbox_lanes
    DROP COLUMN IF EXISTS crashes,
    DROP COLUMN IF EXISTS trial_size,
    DROP COLUMN IF EXISTS trial_event;
DROP TABLE IF EXISTS outbox_relays;
