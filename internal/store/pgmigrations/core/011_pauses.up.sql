-- Additive, in no seed: what operators have paused. A relay reads it with each check of its lease, twice a second; nearly always it is empty.

CREATE TABLE IF NOT EXISTS outbox_pauses (
    table_name TEXT        NOT NULL,   -- as in outbox_lanes; '': every table
    topic      TEXT        NOT NULL,   -- a name, or a pattern in which * stands for any text; '': every topic
    reason     TEXT        NOT NULL,
    actor      TEXT        NOT NULL,
    paused_at  TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (table_name, topic)
);
