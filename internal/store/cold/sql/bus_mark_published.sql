-- bus: events that were delivered. Only pending ones change: neither end state is left again. Locks the rows. Index:
-- idx_event_outbox_pending or the primary key.
UPDATE event_outbox
   SET status = 'published', published_at = {{template "now" .}}, next_retry_at = NULL
 WHERE id {{template "among" (arg .IDs)}} AND status = 'pending'{{with .App}} AND app_id = {{arg .}}{{end}}
