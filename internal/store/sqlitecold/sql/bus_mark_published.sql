-- bus: events that were delivered. Only pending ones change:
-- neither end state is left again. Index: idx_event_outbox_pending.
UPDATE event_outbox
   SET status = 'published', published_at = {{arg .Now}}, next_retry_at = NULL
 WHERE id IN (SELECT value FROM json_each({{arg .IDs}})) AND status = 'pending'{{with .App}} AND app_id = {{arg .}}{{end}}
