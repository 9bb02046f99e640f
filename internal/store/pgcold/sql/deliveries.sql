-- deliveries: what sinks did not take at once of an event. Locks
-- nothing. Index: outbox_deliveries_once.
SELECT e.sink, coalesce(e.destinations->>0, '') AS destination, e.status, e.attempts, {{template "shown_time" "next_retry_at"}} AS next_retry_at, e.last_error,
       {{template "shown_time" "delivered_at"}} AS delivered_at
  FROM outbox_deliveries e
 WHERE e.event_id = {{arg .Event}} AND e.outbox_table = {{arg .Leased}}
 ORDER BY e.sink, e.position
