-- Source: ADR-004 (seed 004, lines 9-50): the eighteen columns and five indexes, by the seed's names. As core/002_outbox_events of PostgreSQL, which says why.

CREATE TABLE outbox_events (
    -- The order of delivery within a key. SQLite has one writer at a time, so it is also the order of the commits. AUTOINCREMENT: never given twice.
    position           INTEGER PRIMARY KEY AUTOINCREMENT,

    id                 TEXT NOT NULL UNIQUE DEFAULT (lower(printf('%08x-%04x-7%.3s-%.1s%.3s-%s',
                           CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) >> 16, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) & 65535,
                           hex(randomblob(2)), substr('89ab', (random() & 3) + 1, 1), hex(randomblob(2)), hex(randomblob(6))))),

    event_topic        TEXT NOT NULL CHECK (length(event_topic) <= 150),
    occurred_at        TEXT NOT NULL,
    schema_id          TEXT CHECK (length(schema_id) <= 128),
    schema_version     INTEGER NOT NULL DEFAULT 1,

    aggregate_id       TEXT CHECK (length(aggregate_id) <= 128),
    aggregate_type     TEXT CHECK (length(aggregate_type) <= 100),

    tenant_id          TEXT NOT NULL DEFAULT 'default' CHECK (length(tenant_id) <= 64),
    source_bc          TEXT NOT NULL CHECK (length(source_bc) <= 50),
    destination_topics TEXT CHECK (destination_topics IS NULL OR json_valid(destination_topics)),

    payload            TEXT NOT NULL CHECK (json_valid(payload)),
    metadata           TEXT CHECK (metadata IS NULL OR json_valid(metadata)),

    -- NEW -> SENT | FAILED | DEAD, FAILED -> SENT | FAILED | DEAD; DEAD -> NEW only by an operator's replay.
    status             TEXT NOT NULL DEFAULT 'NEW' CONSTRAINT outbox_events_status_check CHECK (status IN ('NEW', 'SENT', 'FAILED', 'DEAD')),
    retry_count        INTEGER NOT NULL DEFAULT 0,
    next_retry_at      TEXT CHECK (next_retry_at IS NULL OR next_retry_at GLOB '????-??-??T??:??:??.??????Z'),   -- claims compare it, as a text
    error_message      TEXT,

    created_at         TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    processed_at       TEXT,

    -- ---- additive ----

    error_history      TEXT CHECK (error_history IS NULL OR json_valid(error_history)),   -- array of {error, timestamp}; NULL until the first failure
    delivered_to       TEXT CHECK (delivered_to IS NULL OR json_valid(delivered_to)),    -- destinations already served while others are retried
    generation         INTEGER NOT NULL DEFAULT 0                -- raised by a replay, so that sinks do not take it for a copy
) STRICT;

-- The claim: undelivered rows, oldest first. The rows whose retry is not due; their keys wait with them: nearly always empty. Each tenant's undelivered rows.
CREATE INDEX outbox_events_undelivered ON outbox_events (position) WHERE status IN ('NEW', 'FAILED');
CREATE INDEX outbox_events_waiting     ON outbox_events (next_retry_at) WHERE next_retry_at IS NOT NULL;
CREATE INDEX outbox_events_tenants     ON outbox_events (tenant_id, position) WHERE status IN ('NEW', 'FAILED');

-- The seed's five: of the rows that an operator looks for by them, as in PostgreSQL. There are no block range indexes here: created_at is a b-tree.
CREATE INDEX idx_outbox_status        ON outbox_events (status, next_retry_at) WHERE status IN ('FAILED', 'DEAD');
CREATE INDEX idx_outbox_tenant_status ON outbox_events (tenant_id, status)     WHERE status IN ('FAILED', 'DEAD');
CREATE INDEX idx_outbox_created       ON outbox_events (created_at);
CREATE INDEX idx_outbox_aggregate     ON outbox_events (aggregate_type, aggregate_id) WHERE status IN ('FAILED', 'DEAD');
CREATE INDEX idx_outbox_topic         ON outbox_events (event_topic)           WHERE status IN ('FAILED', 'DEAD');

-- An INSERT is told at once what the relay would make a dead letter of.
CREATE TRIGGER outbox_events_refuse BEFORE INSERT ON outbox_events
WHEN NEW.event_topic = '' OR NEW.tenant_id = '' OR NEW.destination_topics IS NOT NULL OR NEW.metadata IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'event_topic is empty') WHERE NEW.event_topic = '';
    SELECT RAISE(ABORT, 'tenant_id is empty: leave it out for the tenant default') WHERE NEW.tenant_id = '';
    SELECT RAISE(ABORT, 'destination_topics is no array of texts, such as ["orders", "audit"]')
     WHERE CASE WHEN NOT json_valid(NEW.destination_topics) THEN false
                WHEN json_type(NEW.destination_topics) = 'array'
                THEN EXISTS (SELECT 1 FROM json_each(NEW.destination_topics) WHERE type <> 'text' OR value = '')
                ELSE json_type(NEW.destination_topics) <> 'null' END;
    SELECT RAISE(ABORT, 'metadata is no JSON object')
     WHERE CASE WHEN json_valid(NEW.metadata) THEN json_type(NEW.metadata) NOT IN ('object', 'null') END;
END;
