-- retention: takes a table's maintenance, or keeps it. $1 table, $2 owner, $3 time to live in microseconds, $4 how long
-- ago the last run must have begun, in microseconds. No row: somebody else has it, or has just had it. Locks the row;
-- clock_timestamp, because now() would be from before the wait for it.
-- Index: the primary key.
INSERT INTO outbox_maintenance AS m (table_name, owner, expires_at, ran_at)
VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond', clock_timestamp())
ON CONFLICT (table_name) DO UPDATE
   SET owner      = $2,
       expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond',
       ran_at     = CASE WHEN m.owner = $2 THEN m.ran_at ELSE clock_timestamp() END
 WHERE m.owner = $2
    OR (m.owner IS NULL OR m.expires_at <= clock_timestamp())
   AND (m.ran_at IS NULL OR m.ran_at <= clock_timestamp() - $4::bigint * interval '1 microsecond')
RETURNING (extract(epoch FROM clock_timestamp() - coalesce(m.swept_at, 'epoch')) * 1000000)::bigint
