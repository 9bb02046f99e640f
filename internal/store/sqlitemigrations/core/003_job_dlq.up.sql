-- Source: plan 05-01 (seed 002, lines 61 and 81-83), and what a replay needs: core/003_job_dlq of PostgreSQL, which says why.
-- There is no row-level security: whoever may read the file reads the letters of all tenants. The purge function is `outbox dlq purge`.

CREATE TABLE job_dlq (
    id              TEXT PRIMARY KEY NOT NULL DEFAULT (lower(printf('%08x-%04x-7%.3s-%.1s%.3s-%s',
                        CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) >> 16, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) & 65535,
                        hex(randomblob(2)), substr('89ab', (random() & 3) + 1, 1), hex(randomblob(2)), hex(randomblob(6))))),
    source          TEXT    NOT NULL DEFAULT 'job' CONSTRAINT job_dlq_source_check CHECK (source IN ('job', 'event')),
    original_job_id TEXT    NOT NULL,   -- the job's or event's id; no foreign key, the letter outlives its origin
    app_id          TEXT    NOT NULL REFERENCES apps (id) ON DELETE RESTRICT,
    user_id         TEXT,
    request_id      TEXT,
    type            TEXT    NOT NULL,
    payload         TEXT    NOT NULL CHECK (json_valid(payload)),
    error_reason    TEXT    NOT NULL,
    attempts        INTEGER NOT NULL CONSTRAINT job_dlq_attempts_check CHECK (attempts > 0),
    error_history   TEXT    NOT NULL CONSTRAINT job_dlq_error_history_check CHECK (json_valid(error_history) AND json_type(error_history) = 'array'),
    replayed_at     TEXT,

    -- ---- additive ----
    destination     TEXT,
    outbox_table    TEXT,
    event_key       TEXT,
    discarded_at    TEXT,
    discard_reason  TEXT,
    generation      INTEGER NOT NULL DEFAULT 0,
    position        INTEGER,   -- order within the letter's key
    origin          TEXT CHECK (origin IS NULL OR json_valid(origin)),   -- the dead row, where it left its table; of its payload what the letter does not know
    tenant          TEXT,   -- exactly; NULL: the application's namespace

    -- HandlerMissing is shared; every other reason belongs to one source.
    CONSTRAINT job_dlq_error_reason_check CHECK (
        (source = 'job' AND error_reason IN
            ('MaxRetries', 'Validation', 'HandlerMissing', 'RunnerUnavailable', 'Timeout', 'Panic'))
        OR (source = 'event' AND error_reason IN
            ('DeliveryFailed', 'DeserializationFailed', 'DuplicateEvent', 'HandlerMissing', 'HandlerTimeout')))
) STRICT;

-- The seed's nine but for two: ids are in the order of time and are the primary key (the BRIN index of PostgreSQL), and there is no index into JSON (its GIN index).
CREATE INDEX idx_job_dlq_pending_source  ON job_dlq (source, error_reason) WHERE replayed_at IS NULL;
CREATE INDEX idx_job_dlq_pending_type    ON job_dlq (type, error_reason)   WHERE replayed_at IS NULL;
CREATE INDEX idx_job_dlq_pending_app     ON job_dlq (app_id, id DESC)      WHERE replayed_at IS NULL;
CREATE INDEX idx_job_dlq_original_job_id ON job_dlq (original_job_id);
CREATE INDEX idx_job_dlq_request_id      ON job_dlq (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX idx_job_dlq_app_id          ON job_dlq (app_id);
CREATE INDEX idx_job_dlq_user_id         ON job_dlq (user_id) WHERE user_id IS NOT NULL;

-- A replay's pages, and the batches of a purge.
CREATE INDEX job_dlq_replay    ON job_dlq (coalesce(outbox_table, ''), coalesce(position, 0), original_job_id) WHERE replayed_at IS NULL AND discarded_at IS NULL;
CREATE INDEX job_dlq_replayed  ON job_dlq (replayed_at)  WHERE replayed_at IS NOT NULL;
CREATE INDEX job_dlq_discarded ON job_dlq (discarded_at) WHERE discarded_at IS NOT NULL;
