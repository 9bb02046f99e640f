-- In no seed. As core/005_operators of PostgreSQL, which says why; scopes are a JSON array.

-- One row an operator's action, or a page of a long one, in the transaction of the action itself.
CREATE TABLE outbox_audit (
    id      TEXT PRIMARY KEY NOT NULL,
    at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    actor   TEXT    NOT NULL,   -- who, as the command was told or found out; nobody proves it
    action  TEXT    NOT NULL,   -- replay, discard, purge, ...
    letters INTEGER NOT NULL,   -- how many it changed
    filter  TEXT CHECK (filter IS NULL OR json_valid(filter)),   -- how they were chosen
    reason  TEXT,
    detail  TEXT CHECK (detail IS NULL OR json_valid(detail))
) STRICT;

-- Who may use the HTTP API (package token).
CREATE TABLE outbox_tokens (
    id         TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 12 AND id NOT GLOB '*[^a-z2-7]*'),
    name       TEXT NOT NULL DEFAULT '',
    tenant_id  TEXT NOT NULL CHECK (length(tenant_id) <= 64),
    scopes     TEXT NOT NULL CHECK (json_valid(scopes) AND json_array_length(scopes) > 0),
    sha256     BLOB NOT NULL CHECK (length(sha256) = 32),
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    expires_at TEXT,   -- NULL: never
    revoked_at TEXT    -- the row stays: it says whose token it was
) STRICT;

CREATE TABLE outbox_tickets (
    sha256     BLOB PRIMARY KEY NOT NULL CHECK (length(sha256) = 32),
    token_id   TEXT NOT NULL REFERENCES outbox_tokens (id) ON DELETE CASCADE,
    scopes     TEXT NOT NULL CHECK (json_valid(scopes) AND json_array_length(scopes) > 0),
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    expires_at TEXT NOT NULL
) STRICT;
-- Those that nobody used are swept with the next one that is made.
CREATE INDEX outbox_tickets_expires_at ON outbox_tickets (expires_at);
