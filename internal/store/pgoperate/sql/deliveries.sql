-- deliveries: what sinks did not take at once of an event. $1 the event's table, as in outbox_lanes, $2 its id. Locks
-- nothing. Index: outbox_deliveries_once.
SELECT e.sink, coalesce(e.destinations->>0, '') AS destination, e.status, e.attempts, {{template "shown_time" "next_retry_at"}} AS next_retry_at, e.last_error,
       {{template "shown_time" "delivered_at"}} AS delivered_at
  FROM outbox_deliveries e
 WHERE e.event_id = $2 AND e.outbox_table = $1
 ORDER BY e.sink, e.position
