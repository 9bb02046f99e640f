-- The application's own. Outbox's steps follow it, and its next one follows them: whatever is next in the folder.
CREATE TABLE orders (
    id    BIGSERIAL PRIMARY KEY,
    total BIGINT NOT NULL
);
