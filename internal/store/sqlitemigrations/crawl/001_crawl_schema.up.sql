-- Source: FR-006 (seed 001, lines 61-88): runs and the immutable log of their events, and what the API needs of them: crawl/001_crawl_schema of
-- PostgreSQL, which says why. Needs the set core.

CREATE TABLE crawl_runs (
    id               TEXT PRIMARY KEY NOT NULL DEFAULT (lower(printf('%08x-%04x-7%.3s-%.1s%.3s-%s',
                         CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) >> 16, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) & 65535,
                         hex(randomblob(2)), substr('89ab', (random() & 3) + 1, 1), hex(randomblob(2)), hex(randomblob(6)))))
                         CHECK (id GLOB '????????-????-????-????-????????????' AND id NOT GLOB '*[^-0-9a-f]*'),   -- another one would stop whoever lists runs
    status           TEXT NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED')),
    app_package      TEXT NOT NULL CHECK (length(app_package) <= 255),
    device_config    TEXT CHECK (device_config IS NULL OR json_valid(device_config)),
    max_steps        INTEGER NOT NULL DEFAULT 100,
    goal             TEXT,
    created_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')) CHECK (created_at GLOB '????-??-??T??:??:??.??????Z'),   -- lists go by it
    started_at       TEXT,
    completed_at     TEXT,
    cancelled_at     TEXT,
    error_message    TEXT,

    -- ---- additive ----
    tenant_id        TEXT NOT NULL DEFAULT 'default' CHECK (length(tenant_id) <= 64),   -- never changes: its events have a copy
    crawler          TEXT NOT NULL DEFAULT 'external' CHECK (length(crawler) <= 150),   -- who crawls it; external: not a worker
    idempotency_key  TEXT CHECK (length(idempotency_key) <= 255),
    lease_owner      TEXT,   -- the worker's right to the run, as in outbox_lanes
    lease_epoch      INTEGER NOT NULL DEFAULT 0,
    lease_expires_at TEXT,
    next_node        TEXT,   -- where the worker stands: what the next one needs to go on
    node_state       TEXT CHECK (node_state IS NULL OR json_valid(node_state)),
    steps_done       INTEGER NOT NULL DEFAULT 0,
    node_attempts    INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE crawl_events (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    crawl_id   TEXT NOT NULL REFERENCES crawl_runs (id) ON DELETE CASCADE,
    event_type TEXT NOT NULL CHECK (length(event_type) <= 50),
    payload    TEXT NOT NULL CHECK (json_valid(payload)),
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),

    -- ---- additive ----
    seq        INTEGER,   -- NULL only until the trigger below has given it its number
    event_id   TEXT NOT NULL DEFAULT (lower(printf('%08x-%04x-7%.3s-%.1s%.3s-%s',
                   CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) >> 16, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) & 65535,
                   hex(randomblob(2)), substr('89ab', (random() & 3) + 1, 1), hex(randomblob(2)), hex(randomblob(6))))),
    tenant_id  TEXT NOT NULL DEFAULT '',   -- the run's, by the trigger
    CONSTRAINT crawl_events_crawl_id_seq_key UNIQUE (crawl_id, seq)
) STRICT;

CREATE INDEX idx_crawl_events_crawl_id ON crawl_events (crawl_id, id);
CREATE INDEX idx_crawl_runs_created_at ON crawl_runs (created_at DESC);
CREATE UNIQUE INDEX crawl_runs_idempotency_key ON crawl_runs (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- Whose a run is, without reading its row: asked several times a second for each run that is watched (2.6 us a run, 3.6 us with a row that has 16 KB of configuration).
CREATE INDEX crawl_runs_ids ON crawl_runs (id, tenant_id);
CREATE INDEX crawl_runs_tenant ON crawl_runs (tenant_id, created_at DESC, id DESC);
CREATE INDEX crawl_runs_waiting ON crawl_runs (tenant_id, created_at, id) WHERE status IN ('PENDING', 'RUNNING') AND crawler <> 'external';
CREATE INDEX crawl_runs_held ON crawl_runs (tenant_id) WHERE lease_owner IS NOT NULL AND crawler <> 'external';

CREATE INDEX crawl_runs_status ON crawl_runs (tenant_id, status, created_at DESC, id DESC);
CREATE INDEX crawl_runs_app ON crawl_runs (tenant_id, app_package, created_at DESC, id DESC);
CREATE INDEX crawl_runs_app_status ON crawl_runs (tenant_id, app_package, status, created_at DESC, id DESC);
CREATE UNIQUE INDEX crawl_events_event_id_key ON crawl_events (crawl_id, event_id);

-- Keeps the log closed after the terminal event, and its numbers without a gap. If the run's status is final, however it
-- was set, the only event that the log still accepts is the terminal event of that status.
CREATE TRIGGER crawl_events_append BEFORE INSERT ON crawl_events
BEGIN
    SELECT raise(ABORT, 'crawl_events_after_terminal: the run has ended')
      FROM (SELECT event_type FROM crawl_events WHERE crawl_id = NEW.crawl_id ORDER BY seq DESC LIMIT 1)
     WHERE event_type IN ('RUN_COMPLETED', 'RUN_FAILED', 'RUN_CANCELLED');
    SELECT raise(ABORT, 'crawl_events_after_terminal: the status of the run is final')
      FROM crawl_runs r
     WHERE r.id = NEW.crawl_id AND r.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND NEW.event_type <> 'RUN_' || r.status;
    SELECT raise(ABORT, 'crawl_events_seq_gap: seq is not the next number of the run')
     WHERE NEW.seq IS NOT NULL
       AND NEW.seq <> coalesce((SELECT max(seq) FROM crawl_events WHERE crawl_id = NEW.crawl_id), 0) + 1;
END;

-- Numbers an event within its run where plain SQL did not, and gives it its run's tenant, whatever the INSERT says. A BEFORE trigger cannot change a row here.
CREATE TRIGGER crawl_events_number AFTER INSERT ON crawl_events
    WHEN NEW.seq IS NULL OR NEW.tenant_id IS NOT (SELECT r.tenant_id FROM crawl_runs r WHERE r.id = NEW.crawl_id)
BEGIN
    UPDATE crawl_events
       SET seq = coalesce(NEW.seq, coalesce((SELECT max(e.seq) FROM crawl_events e WHERE e.crawl_id = NEW.crawl_id), 0) + 1),
           tenant_id = coalesce((SELECT r.tenant_id FROM crawl_runs r WHERE r.id = NEW.crawl_id), '')
     WHERE id = NEW.id;
END;
