-- Additive, in no seed: the endpoints that a sink knows by name, such as webhook:table (docs/reference/sinks.md#endpoints-in-a-table). outbox endpoints
-- changes it, and relays read it again within seconds. Whoever changes a row by plain SQL gives it another revision, or a relay sees it within a minute.

CREATE TABLE IF NOT EXISTS outbox_endpoints (
    name            TEXT        PRIMARY KEY CONSTRAINT outbox_endpoints_name_check CHECK (name <> ''),
    tenant_id       TEXT,                  -- takes events of this tenant only; NULL: of all
    url             TEXT        NOT NULL,
    secrets         JSONB       NOT NULL,  -- [{"value": "env:NAME", "until": "2026-01-02T15:04:05Z"}, …]: references, or sealed by AES-256-GCM
    headers         JSONB       NOT NULL DEFAULT '{}',   -- {"Authorization": "env:NAME"}: likewise
    timeout_ms      INT,                   -- of a request; NULL here and below: the sink's default
    concurrency     INT,                   -- requests at the same time
    rate            DOUBLE PRECISION,      -- requests a second
    disabled_at     TIMESTAMPTZ,
    disabled_reason TEXT,
    revision        BIGINT      NOT NULL,  -- another one, drawn at random, after each change
    created_at      TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at      TIMESTAMPTZ NOT NULL DEFAULT now()
);
