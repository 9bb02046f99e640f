-- Source: FR-006 (seed 001, lines 61-88): runs and the immutable log of their events. Needs the set core
-- (outbox_uuidv7). All times are TIMESTAMPTZ: a bare TIMESTAMP means another instant for every session time zone.
-- Additive: crawl_events.seq (gap-free from 1 within a run, which a BIGSERIAL shared by all runs cannot be),
-- event_id (what a subscriber knows the event by), and the rule that a run's terminal event is its last.

DO $do$
BEGIN
    IF to_regtype('crawl_status') IS NULL THEN
        CREATE TYPE crawl_status AS ENUM ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED');
    END IF;
END
$do$;

CREATE TABLE IF NOT EXISTS crawl_runs (
    id            UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    status        crawl_status NOT NULL DEFAULT 'PENDING',
    app_package   VARCHAR(255) NOT NULL,
    device_config JSONB,
    max_steps     INTEGER      NOT NULL DEFAULT 100,
    goal          TEXT,
    created_at    TIMESTAMPTZ  NOT NULL DEFAULT now(),
    started_at    TIMESTAMPTZ,
    completed_at  TIMESTAMPTZ,
    cancelled_at  TIMESTAMPTZ,
    error_message TEXT
);

CREATE TABLE IF NOT EXISTS crawl_events (
    id         BIGSERIAL PRIMARY KEY,
    crawl_id   UUID        NOT NULL REFERENCES crawl_runs (id) ON DELETE CASCADE,
    event_type VARCHAR(50) NOT NULL,
    payload    JSONB       NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),

    -- ---- additive ----
    seq        BIGINT      NOT NULL,   -- assigned by the trigger below when left out
    event_id   UUID        NOT NULL DEFAULT outbox_uuidv7(),
    CONSTRAINT crawl_events_crawl_id_seq_key UNIQUE (crawl_id, seq)
);

CREATE INDEX IF NOT EXISTS idx_crawl_events_crawl_id ON crawl_events (crawl_id, id);
CREATE INDEX IF NOT EXISTS idx_crawl_runs_created_at ON crawl_runs (created_at DESC);

-- Numbers an event within its run and keeps the log closed after the terminal event.
--
-- The lock on the run makes writers of one run take turns, so each reads the number the one before committed. (So seq,
-- not id, is the order of a run: id is drawn before the lock is held.) NO KEY UPDATE, because the foreign keys of
-- crawl_events and crawl_outbox hold KEY SHARE on the same row: a plain FOR UPDATE would have two such writers wait
-- for each other. In a REPEATABLE READ transaction the number read may be stale; the unique constraint refuses the row.
CREATE OR REPLACE FUNCTION crawl_events_append() RETURNS trigger
    LANGUAGE plpgsql AS $fn$
DECLARE
    last_seq  BIGINT;
    last_type VARCHAR(50);
BEGIN
    PERFORM 1 FROM crawl_runs WHERE id = NEW.crawl_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        -- The foreign key says it better (23503); it is checked after the row is in, which needs a number.
        NEW.seq := coalesce(NEW.seq, 1);
        RETURN NEW;
    END IF;

    SELECT seq, event_type INTO last_seq, last_type
      FROM crawl_events WHERE crawl_id = NEW.crawl_id ORDER BY seq DESC LIMIT 1;
    last_seq := coalesce(last_seq, 0);

    IF last_type IN ('RUN_COMPLETED', 'RUN_FAILED', 'RUN_CANCELLED') THEN
        RAISE EXCEPTION 'append % to crawl run %: the run ended with %', NEW.event_type, NEW.crawl_id, last_type
            USING ERRCODE = 'check_violation', TABLE = 'crawl_events', CONSTRAINT = 'crawl_events_after_terminal';
    END IF;
    IF NEW.seq IS NULL THEN
        NEW.seq := last_seq + 1;
    ELSIF NEW.seq <> last_seq + 1 THEN
        RAISE EXCEPTION 'append % to crawl run %: seq is %, the next one is %', NEW.event_type, NEW.crawl_id, NEW.seq, last_seq + 1
            USING ERRCODE = 'check_violation', TABLE = 'crawl_events', CONSTRAINT = 'crawl_events_seq_gap';
    END IF;
    RETURN NEW;
END
$fn$;

DROP TRIGGER IF EXISTS crawl_events_append ON crawl_events;
CREATE TRIGGER crawl_events_append BEFORE INSERT ON crawl_events
    FOR EACH ROW EXECUTE FUNCTION crawl_events_append();
