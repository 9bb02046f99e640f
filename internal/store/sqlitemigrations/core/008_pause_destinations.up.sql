-- Additive, in no seed: a destination can be paused by itself. As core/012_pause_destinations of PostgreSQL; a new
-- table, because no primary key of SQLite can be changed.

CREATE TABLE outbox_pauses_new (
    table_name  TEXT NOT NULL,               -- as in outbox_lanes; '': every table
    topic       TEXT NOT NULL,               -- a name, or a pattern in which * stands for any text; '': every topic
    destination TEXT NOT NULL DEFAULT '',    -- likewise; '': every destination
    reason      TEXT NOT NULL,
    actor       TEXT NOT NULL,
    paused_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    PRIMARY KEY (table_name, topic, destination),
    CHECK (topic = '' OR destination = '')
) STRICT;
INSERT INTO outbox_pauses_new (table_name, topic, reason, actor, paused_at)
SELECT table_name, topic, reason, actor, paused_at FROM outbox_pauses;
DROP TABLE outbox_pauses;
ALTER TABLE outbox_pauses_new RENAME TO outbox_pauses;
