-- bus: events that will never be delivered, after bus_letter.sql. Only pending ones change. Index:
-- idx_event_outbox_pending.
UPDATE event_outbox
   SET status = 'failed', next_retry_at = NULL, retry_count = retry_count + 1, error_message = {{arg .Failure.Error}},
       error_history = json_insert(coalesce(error_history, '[]'), '$[#]', json_object('error', {{arg .Failure.Error}}, 'timestamp', {{arg .Now}}))
 WHERE id IN (SELECT value FROM json_each({{arg .IDs}})) AND status = 'pending'{{with .App}} AND app_id = {{arg .}}{{end}}
