-- migrate: one change of schema at a time. $1 key. A session lock: it goes when the connection does.
SELECT pg_catalog.pg_try_advisory_lock($1)
