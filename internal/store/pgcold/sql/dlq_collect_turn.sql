-- dlq: has those take turns who write letters of dead rows, until the transaction ends: dlq_collect.sql must see what
-- the one before has inserted. Not an advisory lock, because any login may take one and keep it. VACUUM takes this
-- mode too; an autovacuum gives way. Keeps no INSERT, UPDATE or DELETE waiting. Needs DELETE on the table.
LOCK TABLE job_dlq IN SHARE UPDATE EXCLUSIVE MODE
