-- deliveries: what sinks did not take at once of an event. ?1 the event's table, as in outbox_lanes, ?2 its id. Locks
-- nothing. Index: outbox_deliveries_once.
SELECT d.sink, coalesce(d.destinations->>0, ''), d.status, d.attempts, d.next_retry_at, d.last_error, d.delivered_at
  FROM outbox_deliveries AS d
 WHERE d.event_id = ?2 AND d.outbox_table = ?1
 ORDER BY d.sink, d.position
