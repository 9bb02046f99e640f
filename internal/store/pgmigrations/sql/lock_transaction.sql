-- migrate: lock.sql for a connection through a pooler, which keeps a session for a transaction only. $1 key. It goes
-- when the transaction ends, which waits for as long as the migrations take.
SELECT pg_catalog.pg_try_advisory_xact_lock($1) FROM pg_catalog.set_config('idle_in_transaction_session_timeout', '0', true)
