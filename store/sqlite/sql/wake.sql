-- wake: a number that changes when another connection, of this process or of another, has committed something. Reads a
-- counter in shared memory.
PRAGMA data_version
