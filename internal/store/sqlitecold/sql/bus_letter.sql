-- bus: the dead letters of events that bus_mark_failed.sql is to mark next, as settle_letter.sql has them. None for a
-- row that is not pending. Index: that of the id.
INSERT INTO job_dlq (id, source, original_job_id, app_id, type, payload, error_reason, attempts, error_history, destination, outbox_table, event_key, generation, position)
SELECT l.value, 'event', e.event_id, e.app_id, e.event_type, e.payload, {{arg .Failure.Reason}}, e.retry_count + 1,
       json_insert(coalesce(e.error_history, '[]'), '$[#]', json_object('error', {{arg .Failure.Error}}, 'timestamp', {{arg .Now}})),
       nullif({{arg .Failure.Destination}}, ''), 'event_outbox', e.event_key, e.generation, e.position
  FROM json_each({{arg .IDs}}) AS i
  CROSS JOIN json_each({{arg .Letters}}) AS l ON l.key = i.key
  CROSS JOIN event_outbox AS e ON e.id = i.value
 WHERE e.status = 'pending'{{with .App}} AND e.app_id = {{arg .}}{{end}}
