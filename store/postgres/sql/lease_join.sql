-- lease: enrols the caller among the relays of a table. $1 table, $2 owner, $3 name, $4 time to live in microseconds,
-- $5 what hinders it, as JSON, or NULL, $6 its sinks and routes, or NULL, $7 the pauses that it obeys, or NULL. Writes
-- only when $5 or $7 has changed, or less than two thirds of its time are left, so that asking often costs nothing, or
-- more than all of it (see lease_take.sql). An UPDATE comes first: ON CONFLICT locks the row before it changes it,
-- whatever its WHERE says, which was a third of what an idle relay wrote to the log. Locks the caller's row. Only the
-- database's clock counts.
-- Index: the primary key.
WITH renewed AS (
    UPDATE outbox_relays SET expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond', health = $5::jsonb, paused = $7, seen_at = clock_timestamp(),
           health_since = CASE WHEN $5::jsonb IS NULL THEN NULL WHEN health IS NULL THEN clock_timestamp() ELSE health_since END
     WHERE table_name = $1 AND owner = $2
       AND (health IS DISTINCT FROM $5::jsonb OR paused IS DISTINCT FROM $7
            OR expires_at NOT BETWEEN clock_timestamp() + $4::bigint * 2 / 3 * interval '1 microsecond'
                                  AND clock_timestamp() + $4::bigint * interval '1 microsecond')
    RETURNING 1
)
INSERT INTO outbox_relays (table_name, owner, name, expires_at, serves)
SELECT $1, $2, $3, clock_timestamp() + $4::bigint * interval '1 microsecond', $6
 WHERE NOT EXISTS (SELECT FROM renewed)
   AND NOT EXISTS (SELECT FROM outbox_relays
                    WHERE table_name = $1 AND owner = $2
                      AND expires_at BETWEEN clock_timestamp() + $4::bigint * 2 / 3 * interval '1 microsecond'
                                         AND clock_timestamp() + $4::bigint * interval '1 microsecond')
ON CONFLICT (table_name, owner) DO UPDATE SET expires_at = excluded.expires_at, seen_at = excluded.seen_at
