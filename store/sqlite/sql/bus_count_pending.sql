-- bus: how many events are pending. ?1 app id, '' for all. Index: idx_event_outbox_pending, which has the application's
-- id in it.
SELECT count(*) FROM event_outbox WHERE status = 'pending' AND (?1 = '' OR app_id = ?1)
