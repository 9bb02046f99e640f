-- dlq: has those take turns who write letters of dead rows of one table, until the transaction ends: dlq_collect.sql
-- must see what the one before has inserted. $1 table. The first number keeps these locks apart from all others: it
-- spells "outd".
SELECT pg_advisory_xact_lock(1869968484, hashtext($1))
