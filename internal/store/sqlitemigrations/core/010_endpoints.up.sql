-- Additive, in no seed: the endpoints that a sink knows by name, such as webhook:table (docs/reference/sinks.md#endpoints-in-a-table). outbox endpoints
-- changes it, and relays read it again within seconds. Whoever changes a row by plain SQL gives it another revision, or a relay sees it within a minute.

CREATE TABLE outbox_endpoints (
    name            TEXT    PRIMARY KEY CONSTRAINT outbox_endpoints_name_check CHECK (name <> ''),
    tenant_id       TEXT,              -- takes events of this tenant only; NULL: of all
    url             TEXT    NOT NULL,
    secrets         TEXT    NOT NULL,  -- [{"value": "env:NAME", "until": "2026-01-02T15:04:05Z"}, …]: references, or sealed by AES-256-GCM
    headers         TEXT    NOT NULL DEFAULT '{}',   -- {"Authorization": "env:NAME"}: likewise
    timeout_ms      INTEGER,           -- of a request; NULL here and below: the sink's default
    concurrency     INTEGER,           -- requests at the same time
    rate            REAL,              -- requests a second
    disabled_at     TEXT,
    disabled_reason TEXT,
    revision        INTEGER NOT NULL,  -- another one, drawn at random, after each change
    created_at      TEXT    NOT NULL,
    updated_at      TEXT    NOT NULL
) STRICT;
