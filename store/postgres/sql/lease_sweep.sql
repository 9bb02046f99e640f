-- lease: forgets relays that were gone for a while. $1 table, $2 the caller, which stays. SKIP LOCKED: one sweeper is enough, and waiting for another
-- could be waiting in a circle. Index: the primary key.
DELETE FROM outbox_relays
 WHERE (table_name, owner) IN (SELECT table_name, owner FROM outbox_relays
                                WHERE table_name = $1 AND owner <> $2 AND expires_at < clock_timestamp() - interval '1 minute'
                                  FOR UPDATE SKIP LOCKED)
