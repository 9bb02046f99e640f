-- bus: the dead letter of an event that bus_mark_failed.sql is to mark next, as settle_letter.sql has it. ?1 app id, ''
-- for all; ?2 row id, ?3 the letter's id, ?4 now, ?5 reason, ?6 error, ?7 destination ('' for all). None for a row that
-- is not pending. Index: that of the id.
INSERT INTO job_dlq (id, source, original_job_id, app_id, type, payload, error_reason, attempts, error_history, destination, outbox_table, event_key, generation, position)
SELECT ?3, 'event', e.event_id, e.app_id, e.event_type, e.payload, ?5, e.retry_count + 1,
       json_insert(coalesce(e.error_history, '[]'), '$[#]', json_object('error', ?6, 'timestamp', ?4)),
       nullif(?7, ''), 'event_outbox', e.event_key, e.generation, e.position
  FROM event_outbox e
 WHERE e.id = ?2 AND e.status = 'pending' AND (?1 = '' OR e.app_id = ?1)
