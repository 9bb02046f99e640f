-- commit: what a change wrote.
COMMIT
