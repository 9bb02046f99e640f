-- Source: FR-007 (seed 000, lines 46-58): the transient publishing queue beside the log; and FR-005 (seed 003,
-- lines 55 and 61), which was written after a rename of crawl to run and calls this table run_outbox.
-- Additive: the columns below the line, the indexes the claim needs, and the view.

CREATE TABLE IF NOT EXISTS crawl_outbox (
    id            BIGSERIAL PRIMARY KEY,
    crawl_id      UUID        NOT NULL REFERENCES crawl_runs (id) ON DELETE CASCADE,
    event_type    VARCHAR(50) NOT NULL,
    payload       JSONB       NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    published_at  TIMESTAMPTZ,

    -- ---- additive; what each is for: core/002_outbox_events. The key is crawl_id, its order that of id. ----
    event_id      UUID NOT NULL DEFAULT outbox_uuidv7(), -- not unique: an index here would be paid at every settle
    seq           BIGINT,                                -- of the log; NULL when the row came by plain SQL
    retry_count   INT NOT NULL DEFAULT 0,
    next_retry_at TIMESTAMPTZ,
    error_message TEXT,
    error_history JSONB,
    delivered_to  JSONB,
    generation    SMALLINT NOT NULL DEFAULT 0,
    tenant_id     VARCHAR(64) NOT NULL DEFAULT 'default'
) WITH (
    -- As on outbox_events.
    autovacuum_vacuum_scale_factor  = 0.01,
    autovacuum_vacuum_threshold     = 10000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_limit    = 2000
);

CREATE INDEX IF NOT EXISTS idx_crawl_outbox_unpublished ON crawl_outbox (published_at, id) WHERE published_at IS NULL;
CREATE INDEX IF NOT EXISTS idx_crawl_outbox_crawl_id ON crawl_outbox (crawl_id);

-- The claim. Beside the seed's index, because FR-005's poll (ORDER BY id) took 79-235 ms on that one right after a
-- 100,000-row backlog had drained, and 22 ms once, then 0.6 ms, on this one (PostgreSQL 15; the seed allows 50 ms).
CREATE INDEX IF NOT EXISTS crawl_outbox_undelivered ON crawl_outbox (id) WHERE published_at IS NULL;
CREATE INDEX IF NOT EXISTS crawl_outbox_waiting ON crawl_outbox (next_retry_at) WHERE next_retry_at IS NOT NULL;
-- As outbox_events_tenants (core/002_outbox_events).
CREATE INDEX IF NOT EXISTS crawl_outbox_tenants ON crawl_outbox (tenant_id COLLATE "C", id) WHERE published_at IS NULL;

-- Simple enough to be updatable by itself: FR-005's SELECT and UPDATE run on it word for word.
-- One that is there stays: where a table run_outbox became crawl_outbox, it has all columns that the table had.
DO $do$
BEGIN
    IF to_regclass('run_outbox') IS NULL THEN
        CREATE VIEW run_outbox AS
            SELECT id, crawl_id AS run_id, event_type, payload, created_at, published_at FROM crawl_outbox;
    END IF;
END
$do$;

-- The log is what replays from the queue's events (FR-005 and FR-006, docs/seeds.md), so an event has one id and one number
-- in both. The two INSERTs of plain SQL draw an id each, and give the queue's row no number.
--
-- What this transaction has written to the log, as far as the newest 10,000 events of all runs go. (created_at beside xmin,
-- for what was written behind a savepoint.) It is read with its owner's rights, and shows nobody what others have
-- written: whoever may write to the queue reads no payloads. Nor an event that a row of the queue has taken: a producer
-- sees no other rows of the queue. count(*), because of a NOT EXISTS the planner may make a hash of the whole queue.
-- Index: idx_crawl_events_crawl_id and idx_crawl_outbox_crawl_id; the primary key for max.
CREATE OR REPLACE VIEW crawl_events_written WITH (security_barrier) AS
    SELECT e.crawl_id, e.event_type, e.payload, e.seq, e.event_id FROM crawl_events e
     WHERE e.id > (SELECT max(id) FROM crawl_events) - 10000 AND (e.xmin = pg_current_xact_id()::xid OR e.created_at = now())
       AND (SELECT count(*) FROM crawl_outbox o WHERE o.crawl_id = e.crawl_id AND o.event_id = e.event_id) = 0;

DO $do$
DECLARE
    writer OID;
BEGIN
    FOR writer IN SELECT DISTINCT a.grantee FROM pg_class c, aclexplode(c.relacl) a
                   WHERE c.oid = to_regclass('crawl_outbox') AND a.privilege_type = 'INSERT' LOOP
        EXECUTE 'GRANT SELECT ON crawl_events_written TO ' || CASE writer WHEN 0 THEN 'PUBLIC' ELSE writer::regrole::text END;
    END LOOP;
END
$do$;

-- Gives its run's tenant to a row that came by plain SQL, as the seeds write it. Such a row also takes the number and the id
-- of its event in the log: the first one of its run, type and payload that this transaction has written and no other row
-- has taken. Only this transaction's, because an older one may have been delivered, and its copies are refused. A row
-- without an event in the log keeps its own id. The program's own rows have both already, and do not pay for it (4.2 us).
-- Whoever inserts by plain SQL needs SELECT (id, tenant_id) on crawl_runs. A role that may not read what is compared writes
-- without it: `outbox migrate roles` grants it. So does a writer while the view is taken away.
CREATE OR REPLACE FUNCTION crawl_outbox_tenant() RETURNS trigger
    LANGUAGE plpgsql AS $fn$
DECLARE
    logged RECORD;
BEGIN
    NEW.tenant_id := coalesce((SELECT r.tenant_id FROM crawl_runs r WHERE r.id = NEW.crawl_id), '');
    IF NEW.seq IS NULL THEN
        BEGIN
            SELECT e.seq, e.event_id INTO logged
              FROM crawl_events_written e
             WHERE e.crawl_id = NEW.crawl_id AND e.event_type = NEW.event_type AND e.payload = NEW.payload
             ORDER BY e.seq LIMIT 1;
            IF FOUND THEN
                NEW.seq := logged.seq;
                NEW.event_id := logged.event_id;
            END IF;
        EXCEPTION WHEN insufficient_privilege OR undefined_table THEN
            NULL;
        END;
    END IF;
    RETURN NEW;
END
$fn$;

DROP TRIGGER IF EXISTS crawl_outbox_tenant ON crawl_outbox;
CREATE TRIGGER crawl_outbox_tenant BEFORE INSERT ON crawl_outbox
    FOR EACH ROW WHEN (NEW.seq IS NULL OR NEW.tenant_id IS NULL) EXECUTE FUNCTION crawl_outbox_tenant();

-- What waits already, as in tables that were adopted. Rows and events of a run, type and payload are paired from the
-- newest back: both are written in one transaction, and the oldest rows may have been archived. Where a relay serves the
-- queue nothing is changed: it may have published a row under its own id and not said so yet. Nor does a superuser
-- change rows of another role's table, whose triggers and indexes would be called with his rights (docs/adr/0008).
DO $do$
BEGIN
    IF (SELECT m.rolsuper AND NOT o.rolsuper
          FROM pg_catalog.pg_roles m, pg_catalog.pg_class c JOIN pg_catalog.pg_roles o ON o.oid = c.relowner
         WHERE m.rolname = current_user AND c.oid = 'crawl_outbox'::pg_catalog.regclass) THEN
        RETURN;
    END IF;
    UPDATE crawl_outbox o
       SET seq = e.seq, event_id = e.event_id
      FROM (SELECT id, crawl_id, event_type, payload, seq, published_at,
                   row_number() OVER (PARTITION BY crawl_id, event_type, payload ORDER BY id DESC) AS nth
              FROM crawl_outbox
             WHERE crawl_id IN (SELECT crawl_id FROM crawl_outbox WHERE published_at IS NULL AND seq IS NULL)) waiting
      JOIN (SELECT crawl_id, event_type, payload, seq, event_id,
                   row_number() OVER (PARTITION BY crawl_id, event_type, payload ORDER BY seq DESC) AS nth
              FROM crawl_events
             WHERE crawl_id IN (SELECT crawl_id FROM crawl_outbox WHERE published_at IS NULL AND seq IS NULL)) e
        ON (e.crawl_id, e.event_type, e.payload, e.nth) = (waiting.crawl_id, waiting.event_type, waiting.payload, waiting.nth)
     WHERE o.id = waiting.id AND waiting.seq IS NULL AND waiting.published_at IS NULL
       AND NOT EXISTS (SELECT FROM outbox_relays r WHERE r.table_name = 'crawl_outbox' AND r.expires_at > clock_timestamp());
END
$do$;
