-- In no seed: what a consumer remembers, as core/006_inbox of PostgreSQL. Ids stand in two tables that take turns: SQLite empties a table whole for next to nothing.

CREATE TABLE outbox_inbox_0 (
    key     TEXT NOT NULL PRIMARY KEY,   -- of consumer, tenant and id: the first half of their SHA-256, as a UUID
    payload TEXT,                        -- the same of the payload; NULL: it was not given
    at      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE outbox_inbox_1 (
    key     TEXT NOT NULL PRIMARY KEY,
    payload TEXT,
    at      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Which of the two is written to, and since when.
CREATE TABLE outbox_inbox_turn (
    one     INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    current INTEGER NOT NULL CHECK (current IN (0, 1)),
    since   TEXT    NOT NULL
) STRICT;
INSERT INTO outbox_inbox_turn (current, since) VALUES (0, strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'));

-- Who asks, and how long what he has handled is remembered at least, in microseconds.
CREATE TABLE outbox_inbox_consumers (
    consumer TEXT    NOT NULL PRIMARY KEY,
    keep     INTEGER NOT NULL,
    seen_at  TEXT    NOT NULL
) STRICT;

-- Effects outside of the database: who is at it, until when, and what came of it.
CREATE TABLE outbox_inbox_claims (
    key        TEXT NOT NULL PRIMARY KEY,
    payload    TEXT,
    owner      TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    done_at    TEXT,
    answer     BLOB
) STRICT;
CREATE INDEX outbox_inbox_claims_ended ON outbox_inbox_claims (coalesce(done_at, expires_at));
