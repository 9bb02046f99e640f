-- lease: whether the caller was enrolled and let it lapse. ?1 table, ?2 owner, ?3 now. Before lease_join.sql, in one
-- transaction. Index: the primary key.
SELECT EXISTS (SELECT 1 FROM outbox_relays WHERE table_name = ?1 AND owner = ?2 AND expires_at <= ?3)
