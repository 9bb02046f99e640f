-- A pause of a destination would be one of its whole table.
CREATE TABLE outbox_pauses_old (
    table_name TEXT NOT NULL,   -- as in outbox_lanes; '': every table
    topic      TEXT NOT NULL,   -- a name, or a pattern in which * stands for any text; '': every topic
    reason     TEXT NOT NULL,
    actor      TEXT NOT NULL,
    paused_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    PRIMARY KEY (table_name, topic)
) STRICT;
INSERT INTO outbox_pauses_old SELECT table_name, topic, reason, actor, paused_at FROM outbox_pauses WHERE destination = '';
DROP TABLE outbox_pauses;
ALTER TABLE outbox_pauses_old RENAME TO outbox_pauses;
