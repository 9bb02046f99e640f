-- lease: forgets relays that were gone for a while. ?1 table, ?2 the caller, which stays, ?3 before when they ended.
-- Index: the primary key.
DELETE FROM outbox_relays WHERE table_name = ?1 AND owner <> ?2 AND expires_at < ?3
