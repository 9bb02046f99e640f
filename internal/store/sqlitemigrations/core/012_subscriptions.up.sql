-- Additive, in no seed: an endpoint subscribes to events whose destination is *. As core/019_subscriptions of PostgreSQL.

ALTER TABLE outbox_endpoints ADD COLUMN topics TEXT NOT NULL DEFAULT '[]';   -- ["order.*", …]: names, or patterns in which * stands for any text
ALTER TABLE outbox_endpoints ADD COLUMN types  TEXT NOT NULL DEFAULT '[]';   -- of aggregates, likewise; both empty: subscribes to nothing
