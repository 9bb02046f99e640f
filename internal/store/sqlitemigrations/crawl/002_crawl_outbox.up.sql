-- Source: FR-007 (seed 000, lines 46-58) and FR-005 (seed 003, lines 55 and 61): the transient publishing queue beside the log. As crawl/002_crawl_outbox of PostgreSQL.

CREATE TABLE crawl_outbox (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    crawl_id      TEXT NOT NULL REFERENCES crawl_runs (id) ON DELETE CASCADE,
    event_type    TEXT NOT NULL CHECK (length(event_type) <= 50),
    payload       TEXT NOT NULL CHECK (json_valid(payload)),
    created_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    published_at  TEXT,

    -- ---- additive; the key is crawl_id, its order that of id ----
    event_id      TEXT NOT NULL DEFAULT (lower(printf('%08x-%04x-7%.3s-%.1s%.3s-%s',
                      CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) >> 16, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) & 65535,
                      hex(randomblob(2)), substr('89ab', (random() & 3) + 1, 1), hex(randomblob(2)), hex(randomblob(6))))),
    seq           INTEGER,   -- of the log; NULL when the row came by plain SQL
    retry_count   INTEGER NOT NULL DEFAULT 0,
    next_retry_at TEXT CHECK (next_retry_at IS NULL OR next_retry_at GLOB '????-??-??T??:??:??.??????Z'),   -- claims compare it, as a text
    error_message TEXT,
    error_history TEXT CHECK (error_history IS NULL OR json_valid(error_history)),
    delivered_to  TEXT CHECK (delivered_to IS NULL OR json_valid(delivered_to)),
    generation    INTEGER NOT NULL DEFAULT 0,
    tenant_id     TEXT NOT NULL DEFAULT ''   -- the run's; by the trigger where plain SQL left it out
) STRICT;

CREATE INDEX idx_crawl_outbox_unpublished ON crawl_outbox (published_at, id) WHERE published_at IS NULL;
CREATE INDEX idx_crawl_outbox_crawl_id ON crawl_outbox (crawl_id);
CREATE INDEX crawl_outbox_undelivered ON crawl_outbox (id) WHERE published_at IS NULL;
CREATE INDEX crawl_outbox_waiting ON crawl_outbox (next_retry_at) WHERE next_retry_at IS NOT NULL;
CREATE INDEX crawl_outbox_tenants ON crawl_outbox (tenant_id, id) WHERE published_at IS NULL;

-- A row of plain SQL takes the number and the id of its event in the log. SQLite does not say which transaction wrote a
-- row, so the event is one of the last five seconds.
CREATE TRIGGER crawl_outbox_tenant AFTER INSERT ON crawl_outbox WHEN NEW.seq IS NULL OR NEW.tenant_id = ''
BEGIN
    UPDATE crawl_outbox SET tenant_id = coalesce((SELECT r.tenant_id FROM crawl_runs r WHERE r.id = NEW.crawl_id), '') WHERE id = NEW.id;
    UPDATE crawl_outbox SET seq = logged.seq, event_id = logged.event_id
      FROM (SELECT e.seq, e.event_id FROM crawl_events e
             WHERE e.crawl_id = NEW.crawl_id AND e.event_type = NEW.event_type AND e.payload = NEW.payload
               AND e.seq > (SELECT max(l.seq) FROM crawl_events l WHERE l.crawl_id = NEW.crawl_id) - 1000
               AND e.created_at > strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-5 seconds')
               AND NOT EXISTS (SELECT 1 FROM crawl_outbox o WHERE o.crawl_id = NEW.crawl_id AND o.event_id = e.event_id)
             ORDER BY e.seq LIMIT 1) logged
     WHERE crawl_outbox.id = NEW.id AND NEW.seq IS NULL;
END;

-- FR-005's name. An INSTEAD OF trigger makes its UPDATE run word for word, as it does on PostgreSQL's view.
CREATE VIEW run_outbox AS
    SELECT id, crawl_id AS run_id, event_type, payload, created_at, published_at FROM crawl_outbox;
CREATE TRIGGER run_outbox_update INSTEAD OF UPDATE ON run_outbox
BEGIN
    UPDATE crawl_outbox
       SET crawl_id = NEW.run_id, event_type = NEW.event_type, payload = NEW.payload, created_at = NEW.created_at, published_at = NEW.published_at
     WHERE id = OLD.id;
END;
CREATE TRIGGER run_outbox_insert INSTEAD OF INSERT ON run_outbox
BEGIN
    INSERT INTO crawl_outbox (id, crawl_id, event_type, payload, created_at, published_at)
    VALUES (NEW.id, NEW.run_id, NEW.event_type, NEW.payload,
            coalesce(NEW.created_at, strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')), NEW.published_at);
END;
