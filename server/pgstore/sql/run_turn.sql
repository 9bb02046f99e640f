-- run: has those take turns who create runs of one tenant, until the transaction ends: run_create.sql counts, and
-- must see what the one before has inserted. $1 tenant. Two tenants with one hash merely wait for each other. The
-- first number keeps these locks apart from all others: it spells "outr".
SELECT pg_advisory_xact_lock(1869968498, hashtext($1))
