-- check: a statement that would write and finds nothing to. SQLite refuses it where the file can only be read, before
-- it looks for a lock; BEGIN IMMEDIATE it would let pass.
UPDATE apps SET name = name WHERE false
