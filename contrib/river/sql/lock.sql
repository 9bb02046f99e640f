-- record: serializes those who record one job, so that the later one sees the letter of the earlier. $1 job id.
-- Locks no row: an advisory lock until the end of the transaction. Any login may take it, so it is waited for 8 s.
-- No index.
SELECT pg_advisory_xact_lock(hashtextextended('outbox river job ' || $1::text, 0))
  FROM set_config('lock_timeout', '8s', true)
