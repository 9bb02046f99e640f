-- token: removes up to ten tickets that have expired, with each one that is made, so that the table never holds more
-- than are being made. ?1 now.
-- Index: outbox_tickets_expires_at, which has the rowids.
DELETE FROM outbox_tickets
 WHERE rowid IN (SELECT rowid FROM outbox_tickets WHERE expires_at < ?1 ORDER BY expires_at LIMIT 10)
