-- Source: FR-007 (seed 000: published rows are archived after 7 days) and plan 05-01 (seed 002: purges). As core/007_retention of PostgreSQL.

-- One row a table that something is removed from. Held only while a run is under way.
CREATE TABLE outbox_maintenance (
    table_name TEXT PRIMARY KEY NOT NULL,
    owner      TEXT,      -- who is at work; NULL: nobody
    expires_at TEXT,
    ran_at     TEXT,      -- when the last run began
    rows       INTEGER,   -- that it removed
    swept_at   TEXT       -- when the last run began that looked at every row
) STRICT, WITHOUT ROWID;

-- An event may be archived again: its id is written again once its row is gone, and where a position is no AUTOINCREMENT at the same one, or somebody puts an archived row back.
-- The time is in the key because both rows are kept then: what is archived is deleted, so there must be no row that is not stored because another is.
CREATE TABLE outbox_archive (
    table_name  TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    position    INTEGER NOT NULL,
    archived_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    row         TEXT    NOT NULL CHECK (json_valid(row)),   -- every column by its name
    PRIMARY KEY (table_name, id, position, archived_at)
) STRICT;
-- For whoever removes what is older than years.
CREATE INDEX outbox_archive_archived_at ON outbox_archive (archived_at);
