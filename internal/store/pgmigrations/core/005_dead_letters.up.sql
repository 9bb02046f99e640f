-- Additive, in no seed: what a replay needs of a letter beyond job_dlq's columns, and the record of what operators do.

-- Order within the letter's key, so that a key's letters are replayed in the order of its events.
ALTER TABLE job_dlq ADD COLUMN IF NOT EXISTS position BIGINT;
-- The dead row without its payload, where it left its table (crawl_outbox): a replay inserts exactly this row again, at its
-- old position. NULL where the row is still there, and for jobs.
ALTER TABLE job_dlq ADD COLUMN IF NOT EXISTS origin JSONB;

-- A replay's pages: by table, in the order of positions, the letters of one event together. Jobs, and events that died before
-- this migration, have no position. Letters wait to be replayed or discarded; afterwards they cost nothing here.
CREATE INDEX IF NOT EXISTS job_dlq_replay ON job_dlq (coalesce(outbox_table, ''), coalesce(position, 0), original_job_id)
    WHERE replayed_at IS NULL AND discarded_at IS NULL;
-- A purge, in batches: without these each batch would read the whole table.
CREATE INDEX IF NOT EXISTS job_dlq_replayed  ON job_dlq (replayed_at)  WHERE replayed_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS job_dlq_discarded ON job_dlq (discarded_at) WHERE discarded_at IS NOT NULL;

-- One row an operator's action, or a page of a long one, in the transaction of the action itself.
CREATE TABLE IF NOT EXISTS outbox_audit (
    id      UUID PRIMARY KEY DEFAULT outbox_uuidv7(),
    at      TIMESTAMPTZ NOT NULL DEFAULT now(),
    actor   TEXT        NOT NULL,   -- who, as the command was told or found out; nobody proves it
    action  TEXT        NOT NULL,   -- replay, discard, purge, …
    letters INT         NOT NULL,   -- how many it changed
    filter  JSONB,                  -- how they were chosen
    reason  TEXT,
    detail  JSONB
);
