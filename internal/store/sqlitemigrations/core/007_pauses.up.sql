-- Additive, in no seed: what operators have paused. As core/011_pauses of PostgreSQL.

CREATE TABLE outbox_pauses (
    table_name TEXT NOT NULL,   -- as in outbox_lanes; '': every table
    topic      TEXT NOT NULL,   -- a name, or a pattern in which * stands for any text; '': every topic
    reason     TEXT NOT NULL,
    actor      TEXT NOT NULL,
    paused_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    PRIMARY KEY (table_name, topic)
) STRICT;
