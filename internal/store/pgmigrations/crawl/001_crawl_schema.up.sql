-- Source: FR-006 (seed 001, lines 61-88): runs and the immutable log of their events. Needs the set core
-- (outbox_uuidv7). All times are TIMESTAMPTZ: a bare TIMESTAMP means another instant for every session time zone.
-- Additive: crawl_events.seq (gap-free from 1 within a run, which a BIGSERIAL shared by all runs cannot be),
-- event_id (what a subscriber knows the event by), and the rule that a run's terminal event is its last. Runs are created
-- idempotently, belong to a tenant (ADR-004's tenant_id), and are crawled by a worker that another one takes over from by
-- lease. Row-level security is not enabled here but in roles.sql, in the transaction that makes its policies: enabled by
-- itself it would shut out every role but the owner until then.

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
    error_message TEXT,

    -- ---- additive ----
    tenant_id        VARCHAR(64)  NOT NULL DEFAULT 'default',   -- never changes: its events have a copy
    crawler          VARCHAR(150) NOT NULL DEFAULT 'external',  -- who crawls it; external: not a worker
    idempotency_key  VARCHAR(255),
    -- The worker's right to the run, as in outbox_lanes: by the database's clock, and the epoch rises with every claim.
    lease_owner      UUID,
    lease_epoch      BIGINT NOT NULL DEFAULT 0,
    lease_expires_at TIMESTAMPTZ,
    -- Where the worker stands: what the next one needs to go on.
    next_node        TEXT,
    node_state       JSONB,
    steps_done       INT NOT NULL DEFAULT 0,
    node_attempts    INT NOT NULL DEFAULT 0                     -- claims since steps_done last rose
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
    tenant_id  VARCHAR(64) NOT NULL DEFAULT 'default',   -- the run's, by the trigger
    CONSTRAINT crawl_events_crawl_id_seq_key UNIQUE (crawl_id, seq)
);

CREATE INDEX IF NOT EXISTS idx_crawl_events_crawl_id ON crawl_events (crawl_id, id);
CREATE INDEX IF NOT EXISTS idx_crawl_runs_created_at ON crawl_runs (created_at DESC);
-- An event that is appended again is found by its id.
CREATE UNIQUE INDEX IF NOT EXISTS crawl_events_event_id_key ON crawl_events (crawl_id, event_id);

-- What a second Create finds. The content is compared column by column: it never changes, and so needs no digest.
CREATE UNIQUE INDEX IF NOT EXISTS crawl_runs_idempotency_key ON crawl_runs (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS crawl_runs_tenant ON crawl_runs (tenant_id, created_at DESC, id DESC);
-- What workers may claim, by tenant and oldest first (run_claim.sql).
CREATE INDEX IF NOT EXISTS crawl_runs_waiting ON crawl_runs (tenant_id, created_at, id) WHERE status IN ('PENDING', 'RUNNING') AND crawler <> 'external';
-- How many runs of each tenant workers have. Not the lease's end, so that a renewal changes no index (HOT); and
-- crawler, which a renewal does not name, so that the planner looks for its run by the primary key.
CREATE INDEX IF NOT EXISTS crawl_runs_held ON crawl_runs (tenant_id) WHERE lease_owner IS NOT NULL AND crawler <> 'external';

-- Lists by app, by status and by both (run_list.sql): a filter that matches nothing reads nothing. The PENDING ones
-- are also counted (run_create.sql). An index for each status, in one of which a run is: as a column of one index the
-- status would not be looked up under row-level security, because the comparison of enums is not leakproof.
CREATE INDEX IF NOT EXISTS crawl_runs_app ON crawl_runs (tenant_id, app_package, created_at DESC, id DESC);
DO $do$
DECLARE
    state TEXT;
BEGIN
    FOREACH state IN ARRAY ARRAY['PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED'] LOOP
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON crawl_runs (tenant_id, created_at DESC, id DESC) WHERE status = %L', 'crawl_runs_' || lower(state), state);
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON crawl_runs (tenant_id, app_package, created_at DESC, id DESC) WHERE status = %L', 'crawl_runs_app_' || lower(state), state);
    END LOOP;
END
$do$;

-- Numbers an event within its run and keeps the log closed after the terminal event. If the run's status is final,
-- however it was set, the only event that the log still accepts is the terminal event of that status.
--
-- The lock on the run makes writers of one run take turns, so each reads the number the one before committed. (So seq,
-- not id, is the order of a run: id is drawn before the lock is held.) NO KEY UPDATE, because the foreign keys of
-- crawl_events and crawl_outbox hold KEY SHARE on the same row: a plain FOR UPDATE would have two such writers wait
-- for each other. In a REPEATABLE READ transaction the number read may be stale; the unique constraint refuses the row.
--
-- It also gives the event its run's tenant, whatever the INSERT says. A run that is not found may be one that row-level
-- security hides: then '' is what no policy of a tenant lets pass, or a tenant could append to another's run, which the
-- foreign key sees.
CREATE OR REPLACE FUNCTION crawl_events_append() RETURNS trigger
    LANGUAGE plpgsql AS $fn$
DECLARE
    last_seq  BIGINT;
    last_type VARCHAR(50);
    state     TEXT;
BEGIN
    SELECT tenant_id, status INTO NEW.tenant_id, state FROM crawl_runs WHERE id = NEW.crawl_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        -- The foreign key says it better (23503); it is checked after the row is in, which needs a number.
        NEW.tenant_id := '';
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
    IF state IN ('COMPLETED', 'FAILED', 'CANCELLED') AND NEW.event_type <> 'RUN_' || state THEN
        RAISE EXCEPTION 'append % to crawl run %: the status of the run is %; only RUN_% can follow', NEW.event_type, NEW.crawl_id, state, state
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
