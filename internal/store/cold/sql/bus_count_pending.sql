-- bus: how many events are pending. Index: idx_event_outbox_pending, which has the application's id in it.
SELECT count(*) FROM event_outbox WHERE status = 'pending'{{with .App}} AND app_id = {{arg .}}{{end}}
