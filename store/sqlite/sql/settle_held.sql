-- settle: the lanes that the caller still owns, and at which epoch. ?1 table, ?2 owner. Asked inside the transaction
-- that settles: nobody else writes until it ends.
-- Index: the primary key.
SELECT lane, epoch FROM outbox_lanes WHERE table_name = ?1 AND owner = ?2
