-- bus: the oldest pending events, in a write transaction, which keeps all other takers away until it ends.
-- Index: event_outbox_undelivered in order, so that LIMIT stops it; SQLite is told so, or it would take
-- idx_event_outbox_pending for the status and sort. And event_outbox_waiting for the keys that wait for a retry (of a
-- relay that served the table before).
SELECT e.id, e.app_id, e.event_id, e.event_type, e.payload, coalesce(e.event_key, ''), e.status, e.published_at
  FROM event_outbox AS e INDEXED BY event_outbox_undelivered
 WHERE e.status = 'pending'{{with .App}} AND e.app_id = {{arg .}}{{end}}
   AND (e.next_retry_at IS NULL OR e.next_retry_at <= {{arg .Now}})
   AND NOT EXISTS (SELECT 1 FROM event_outbox AS b
                    WHERE b.next_retry_at > {{arg .Now}} AND +b.status = 'pending' AND +b.app_id = e.app_id AND coalesce(b.event_key, '') = coalesce(e.event_key, '') AND b.position < e.position)
 ORDER BY e.position
 LIMIT {{arg .Limit}}
