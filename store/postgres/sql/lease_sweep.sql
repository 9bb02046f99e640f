-- lease: forgets relays that were gone for a while, and cuts what ends later than anybody can have asked for. $1 table,
-- $2 the caller, which stays and has asked for its own time, $3 time to live in microseconds. Such an end was written
-- before the server's clock was set back, and would be nobody's until the old time came, if its owner died. It is cut
-- and not taken: an owner that is alive looks within half a second and writes it anew. Nothing bounds a lease's time,
-- and others may ask for another than the caller; nobody is likely to ask for ten times as much, or for more than ten
-- minutes. SKIP LOCKED: one sweeper is enough, and waiting for another could be waiting in a circle. Index: the primary
-- keys.
WITH latest AS MATERIALIZED (
    SELECT clock_timestamp() + greatest($3::bigint * 10 * interval '1 microsecond', interval '10 minutes') AS at,
           clock_timestamp() + $3::bigint * interval '1 microsecond' AS cut
), lanes AS (
    UPDATE outbox_lanes l
       SET expires_at = latest.cut
      FROM latest
     WHERE (l.table_name, l.lane) IN (SELECT table_name, lane FROM outbox_lanes
                                       WHERE table_name = $1 AND owner <> $2 AND expires_at > (SELECT at FROM latest)
                                         FOR UPDATE SKIP LOCKED)
), relays AS (
    UPDATE outbox_relays r
       SET expires_at = latest.cut
      FROM latest
     WHERE (r.table_name, r.owner) IN (SELECT table_name, owner FROM outbox_relays
                                        WHERE table_name = $1 AND owner <> $2 AND expires_at > (SELECT at FROM latest)
                                          FOR UPDATE SKIP LOCKED)
)
DELETE FROM outbox_relays
 WHERE (table_name, owner) IN (SELECT table_name, owner FROM outbox_relays
                                WHERE table_name = $1 AND owner <> $2 AND expires_at < clock_timestamp() - interval '1 minute'
                                  FOR UPDATE SKIP LOCKED)
