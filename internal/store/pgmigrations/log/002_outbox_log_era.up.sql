-- One row, which lasts as long as the server forgets nothing: a crash and the promotion of a standby empty the table,
-- because it is unlogged. Both may take the last commits, whose positions and transactions are given out again. What a
-- relay remembers of positions holds in one era only.
CREATE UNLOGGED TABLE IF NOT EXISTS outbox_log_era (
    one BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
    era UUID    NOT NULL DEFAULT gen_random_uuid()
);
