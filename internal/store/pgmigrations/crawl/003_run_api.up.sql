-- Source: FR-005, 006 and 007 as SEED_FACTS section 1 tells of the system around them: runs are created idempotently, belong to a tenant (ADR-004's
-- tenant_id), and are crawled by a worker that another one takes over from by lease. All of it is additive.
-- The new columns have constant defaults, so no row is rewritten. The indexes are built as those of core/007: writers wait meanwhile. Row-level security
-- is not enabled here but in roles.sql, in the transaction that makes its policies: enabled by itself it would shut out every role but the owner until then.
-- What it costs an INSERT, of 8 us (crawl_outbox) and 18 us (crawl_events) of PostgreSQL's time in calls of 20,000 rows: the index by tenant 1.3 us, that of event ids
-- nothing that shows, the tenant of a row by plain SQL 4.2 us.

ALTER TABLE crawl_runs
    ADD COLUMN IF NOT EXISTS tenant_id        VARCHAR(64)  NOT NULL DEFAULT 'default',   -- never changes: its events have a copy
    ADD COLUMN IF NOT EXISTS crawler          VARCHAR(150) NOT NULL DEFAULT 'external',  -- who crawls it; external: not a worker
    ADD COLUMN IF NOT EXISTS idempotency_key  VARCHAR(255),
    -- The worker's right to the run, as in outbox_lanes: by the database's clock, and the epoch rises with every claim.
    ADD COLUMN IF NOT EXISTS lease_owner      UUID,
    ADD COLUMN IF NOT EXISTS lease_epoch      BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS lease_expires_at TIMESTAMPTZ,
    -- Where the worker stands: what the next one needs to go on.
    ADD COLUMN IF NOT EXISTS next_node        TEXT,
    ADD COLUMN IF NOT EXISTS node_state       JSONB,
    ADD COLUMN IF NOT EXISTS steps_done       INT NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS node_attempts    INT NOT NULL DEFAULT 0;                    -- claims since steps_done last rose

-- What a second Create finds. The content is compared column by column: it never changes, and so needs no digest.
CREATE UNIQUE INDEX IF NOT EXISTS crawl_runs_idempotency_key ON crawl_runs (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS crawl_runs_tenant ON crawl_runs (tenant_id, created_at DESC, id DESC);
-- What workers may claim, oldest first. Not the lease's columns, so that a renewal changes no index (HOT): the few runs that others
-- hold are passed over.
CREATE INDEX IF NOT EXISTS crawl_runs_claimable ON crawl_runs (created_at, id) WHERE status IN ('PENDING', 'RUNNING') AND crawler <> 'external';

ALTER TABLE crawl_events ADD COLUMN IF NOT EXISTS tenant_id VARCHAR(64) NOT NULL DEFAULT 'default';   -- the run's, by the trigger
-- An event that is appended again is found by its id.
CREATE UNIQUE INDEX IF NOT EXISTS crawl_events_event_id_key ON crawl_events (crawl_id, event_id);

ALTER TABLE crawl_outbox ADD COLUMN IF NOT EXISTS tenant_id VARCHAR(64) NOT NULL DEFAULT 'default';
-- As outbox_events_tenants (core/007).
CREATE INDEX IF NOT EXISTS crawl_outbox_tenants ON crawl_outbox (tenant_id COLLATE "C", id) WHERE published_at IS NULL;

-- As in 001, where its reasons are, and gives the event its run's tenant, whatever the INSERT says.
--
-- A run that is not found may be one that row-level security hides: then '' is what no policy of a tenant lets pass, or a tenant could
-- append to another's run, which the foreign key sees.
CREATE OR REPLACE FUNCTION crawl_events_append() RETURNS trigger
    LANGUAGE plpgsql AS $fn$
DECLARE
    last_seq  BIGINT;
    last_type VARCHAR(50);
BEGIN
    SELECT tenant_id INTO NEW.tenant_id FROM crawl_runs WHERE id = NEW.crawl_id FOR NO KEY UPDATE;
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
    IF NEW.seq IS NULL THEN
        NEW.seq := last_seq + 1;
    ELSIF NEW.seq <> last_seq + 1 THEN
        RAISE EXCEPTION 'append % to crawl run %: seq is %, the next one is %', NEW.event_type, NEW.crawl_id, NEW.seq, last_seq + 1
            USING ERRCODE = 'check_violation', TABLE = 'crawl_events', CONSTRAINT = 'crawl_events_seq_gap';
    END IF;
    RETURN NEW;
END
$fn$;

-- Gives its run's tenant to a row that came by plain SQL, as the seeds write it, and to one that a replay puts back from a letter of before this file. The program's
-- own rows have both and do not pay for it. Whoever inserts by plain SQL needs SELECT (id, tenant_id) on crawl_runs.
CREATE OR REPLACE FUNCTION crawl_outbox_tenant() RETURNS trigger
    LANGUAGE plpgsql AS $fn$
BEGIN
    NEW.tenant_id := coalesce((SELECT r.tenant_id FROM crawl_runs r WHERE r.id = NEW.crawl_id), '');
    RETURN NEW;
END
$fn$;

DROP TRIGGER IF EXISTS crawl_outbox_tenant ON crawl_outbox;
CREATE TRIGGER crawl_outbox_tenant BEFORE INSERT ON crawl_outbox
    FOR EACH ROW WHEN (NEW.seq IS NULL OR NEW.tenant_id IS NULL) EXECUTE FUNCTION crawl_outbox_tenant();
