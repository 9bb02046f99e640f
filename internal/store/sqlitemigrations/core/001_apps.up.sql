-- Source: the event bus of plan 05-01 (seed 002). As core/001_apps of PostgreSQL.
--
-- What differs in every file from PostgreSQL's, and why:
--   uuid         TEXT of 36 lower-case characters: readable in any tool, and any language writes it
--   timestamptz  TEXT, UTC, always of the form 2006-01-02T15:04:05.000000Z: of one width, so that the order of the text is the order of time
--   jsonb        TEXT that is valid JSON, kept as it was written; "IS NULL OR", because json_valid(NULL) is 0 and not NULL in SQLite 3.40, which many a machine has
--   varchar(n)   TEXT with a CHECK: SQLite ignores the length of a type
-- One expression makes a UUIDv7 (RFC 9562) for rows written in plain SQL, from functions that SQLite had ten years ago: milliseconds since 1970, then random bits. The
-- library draws its ids itself.
-- All files of an `up` are one transaction: a process that dies in it leaves the file as it was.

CREATE TABLE apps (
    id         TEXT PRIMARY KEY NOT NULL DEFAULT (lower(printf('%08x-%04x-7%.3s-%.1s%.3s-%s',
                   CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) >> 16, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) & 65535,
                   hex(randomblob(2)), substr('89ab', (random() & 3) + 1, 1), hex(randomblob(2)), hex(randomblob(6))))),
    name       TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    settings   TEXT CHECK (settings IS NULL OR json_valid(settings)),
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) STRICT;

-- 'Acme' and 'acme' are one tenant.
CREATE UNIQUE INDEX apps_namespace_key ON apps (lower(namespace));

INSERT INTO apps (name, namespace) VALUES ('Default', 'default');
