-- Additive, in no seed: an endpoint subscribes to events whose destination is * (docs/reference/sinks.md#subscriptions). Secrets and headers are sealed:
-- no row refers to a variable or a file any more (core/014 says so).

ALTER TABLE outbox_endpoints
    ADD COLUMN IF NOT EXISTS topics JSONB NOT NULL DEFAULT '[]',   -- ["order.*", …]: names, or patterns in which * stands for any text
    ADD COLUMN IF NOT EXISTS types  JSONB NOT NULL DEFAULT '[]';   -- of aggregates, likewise; both empty: subscribes to nothing
