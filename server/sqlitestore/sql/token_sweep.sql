-- token: removes up to ten tickets that have expired. Index: outbox_tickets_expires_at, which has the rowids.
DELETE FROM outbox_tickets
 WHERE rowid IN (SELECT rowid FROM outbox_tickets WHERE expires_at < {{arg .Now}} ORDER BY expires_at LIMIT 10)
