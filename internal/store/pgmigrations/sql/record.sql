-- adopt: how to give adopted tables back: what was done to each, in order, and what undoes it. The down files run it
-- backwards, so that golang-migrate's own command is safe too. Whoever may write here has his SQL run by whoever
-- migrates down, so nobody but the owner may.
CREATE TABLE IF NOT EXISTS outbox_adopted (
    table_name TEXT NOT NULL,
    step       INT  GENERATED ALWAYS AS IDENTITY,
    object     TEXT NOT NULL,   -- what was added: column position
    undo       TEXT NOT NULL,
    PRIMARY KEY (table_name, step)
)
