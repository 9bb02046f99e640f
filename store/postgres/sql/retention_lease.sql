-- retention: takes a table's maintenance, or keeps it. Least is how long ago the last run must have
-- begun. No row: somebody else has it, or has just had it. Locks the row; clock_timestamp, because
-- now() would be from before the wait for it.
-- Index: the primary key.
INSERT INTO outbox_maintenance AS m (table_name, owner, expires_at, ran_at)
VALUES ({{arg .Name}}, {{arg .Owner}}, clock_timestamp() + {{arg .TTL}}::bigint * interval '1 microsecond', clock_timestamp())
ON CONFLICT (table_name) DO UPDATE
   SET owner      = excluded.owner,
       expires_at = clock_timestamp() + {{arg .TTL}}::bigint * interval '1 microsecond',
       ran_at     = CASE WHEN m.owner = excluded.owner THEN m.ran_at ELSE clock_timestamp() END
 WHERE m.owner = excluded.owner
    OR (m.owner IS NULL OR m.expires_at <= clock_timestamp())
   AND (m.ran_at IS NULL OR m.ran_at <= clock_timestamp() - {{arg .Least}}::bigint * interval '1 microsecond')
RETURNING (extract(epoch FROM clock_timestamp() - coalesce(m.swept_at, 'epoch')) * 1000000)::bigint
