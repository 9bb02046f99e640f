-- dlq: has those take turns who write letters of dead rows of one table, until the transaction ends: dlq_collect.sql
-- must see what the one before has inserted. Any login may take such a lock, so it is waited for 30 s.
-- The first number keeps these locks apart from all others: it spells "outd".
SELECT pg_advisory_xact_lock(1869968484, hashtext({{arg .RawTable}}::text)) FROM set_config('lock_timeout', '30s', true)
