-- Source: plan 05-01 (seed 002, lines 60-63 and 76): the event bus's outbox. As events/001_event_outbox of PostgreSQL, without row-level security; the purge function
-- is `outbox purge`. Needs the set core (apps).

CREATE TABLE event_outbox (
    position      INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT NOT NULL UNIQUE DEFAULT (lower(printf('%08x-%04x-7%.3s-%.1s%.3s-%s',
                      CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) >> 16, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) & 65535,
                      hex(randomblob(2)), substr('89ab', (random() & 3) + 1, 1), hex(randomblob(2)), hex(randomblob(6))))),
    app_id        TEXT NOT NULL REFERENCES apps (id) ON DELETE RESTRICT,
    event_id      TEXT NOT NULL CONSTRAINT event_outbox_event_id_key UNIQUE,
    event_type    TEXT NOT NULL,
    payload       TEXT NOT NULL CHECK (json_valid(payload)),
    status        TEXT NOT NULL DEFAULT 'pending' CONSTRAINT event_outbox_status_check CHECK (status IN ('pending', 'published', 'failed')),
    published_at  TEXT,

    -- ---- additive ----
    event_key     TEXT,
    retry_count   INTEGER NOT NULL DEFAULT 0,
    next_retry_at TEXT CHECK (next_retry_at IS NULL OR next_retry_at GLOB '????-??-??T??:??:??.??????Z'),   -- claims compare it, as a text
    error_message TEXT,
    error_history TEXT CHECK (error_history IS NULL OR json_valid(error_history)),
    delivered_to  TEXT CHECK (delivered_to IS NULL OR json_valid(delivered_to)),
    generation    INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX event_outbox_undelivered ON event_outbox (position) WHERE status = 'pending';
CREATE INDEX event_outbox_waiting     ON event_outbox (next_retry_at) WHERE next_retry_at IS NOT NULL;
CREATE INDEX event_outbox_tenants     ON event_outbox (app_id, position) WHERE status = 'pending';

-- The seed's; ids in the order of time are what its BRIN index is for.
CREATE INDEX idx_event_outbox_pending ON event_outbox (status, id, app_id, event_type) WHERE status = 'pending';
CREATE INDEX idx_event_outbox_failed  ON event_outbox (event_type, id DESC) WHERE status = 'failed';
CREATE INDEX idx_event_outbox_app_id  ON event_outbox (app_id);

CREATE TRIGGER event_outbox_refuse BEFORE INSERT ON event_outbox WHEN NEW.event_type = ''
BEGIN
    SELECT RAISE(ABORT, 'event_type is empty');
END;
