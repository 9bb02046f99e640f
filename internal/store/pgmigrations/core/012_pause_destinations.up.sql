-- Additive, in no seed: a destination can be paused by itself. The table has a few rows, or none.

ALTER TABLE outbox_pauses
    ADD COLUMN IF NOT EXISTS destination TEXT NOT NULL DEFAULT '',   -- a name or a pattern, as topic; '': every destination
    DROP CONSTRAINT IF EXISTS outbox_pauses_one,
    DROP CONSTRAINT IF EXISTS outbox_pauses_pkey;
ALTER TABLE outbox_pauses
    ADD CONSTRAINT outbox_pauses_one CHECK (topic = '' OR destination = ''),
    ADD PRIMARY KEY (table_name, topic, destination);
