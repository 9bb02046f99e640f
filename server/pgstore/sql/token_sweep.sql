-- token: removes up to ten tickets that have expired. Locks those it removes, without waiting for those that another
-- does. Index: outbox_tickets_expires_at.
DELETE FROM outbox_tickets
 WHERE sha256 = ANY (ARRAY(SELECT t.sha256 FROM outbox_tickets t WHERE t.expires_at < now() ORDER BY t.expires_at LIMIT 10 FOR UPDATE SKIP LOCKED))
