-- Outbox, core/005_operators.

-- In no seed: one row an operator's action, or a page of a long one, in the transaction of the action itself.
CREATE TABLE IF NOT EXISTS outbox_audit (
    id      UUID PRIMARY KEY DEFAULT outbox_uuidv7(),
    at      TIMESTAMPTZ NOT NULL DEFAULT now(),
    actor   TEXT        NOT NULL,   -- who, as the program was told or found out
    action  TEXT        NOT NULL,   -- replay, discard, purge, ...
    letters INT         NOT NULL,   -- how many it changed
    filter  JSONB,                  -- how they were chosen
    reason  TEXT,
    detail  JSONB,
    -- The database's own word of who it was. roles.sql lets nobody write this column or at.
    db_user TEXT DEFAULT session_user
);

-- Who may use the HTTP API (package token). Secrets are stored as SHA-256 and nowhere else: 256 random bits cannot be
-- guessed from it, so a slow hash would only make each request slow.
CREATE TABLE IF NOT EXISTS outbox_tokens (
    id         TEXT        PRIMARY KEY CHECK (id ~ '^[a-z2-7]{12}$'),
    name       TEXT        NOT NULL DEFAULT '',
    tenant_id  VARCHAR(64) NOT NULL,   -- ADR-004's: the namespace of the application
    scopes     TEXT[]      NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'operate', 'consume', 'admin:read', 'admin:write']),
    sha256     BYTEA       NOT NULL CHECK (octet_length(sha256) = 32),
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    expires_at TIMESTAMPTZ,            -- NULL: never
    revoked_at TIMESTAMPTZ             -- the row stays: it says whose token it was
);

-- A ticket lives for seconds and is deleted by its only use. It is for its token's tenant, and for those of its scopes that the token has too. Whoever may insert
-- tickets but not choose created_at, as a gateway, cannot make one that lasts.
CREATE TABLE IF NOT EXISTS outbox_tickets (
    sha256     BYTEA       PRIMARY KEY CHECK (octet_length(sha256) = 32),
    token_id   TEXT        NOT NULL REFERENCES outbox_tokens (id) ON DELETE CASCADE,
    scopes     TEXT[]      NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'operate', 'consume', 'admin:read', 'admin:write']),
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    expires_at TIMESTAMPTZ NOT NULL CHECK (expires_at <= created_at + interval '1 minute')
);
-- Those that nobody used are swept with the next one that is made.
CREATE INDEX IF NOT EXISTS outbox_tickets_expires_at ON outbox_tickets (expires_at);
