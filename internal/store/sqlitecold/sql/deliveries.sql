-- deliveries: what sinks did not take at once of an event. Locks
-- nothing. Index: outbox_deliveries_once.
SELECT d.sink, coalesce(d.destinations->>0, ''), d.status, d.attempts, d.next_retry_at, d.last_error, d.delivered_at
  FROM outbox_deliveries AS d
 WHERE d.event_id = {{arg .Event}} AND d.outbox_table = {{arg .Leased}}
 ORDER BY d.sink, d.position
