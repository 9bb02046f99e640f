-- run: which of these ids are in a run's log, where and as what. ?1 run, ?2 ids as a JSON array. Whether they are the
-- same events is compared in Go, as in run_by_key.sql.
-- Index: that of (crawl_id, event_id).
SELECT e.event_id, e.seq, e.event_type, e.payload
  FROM json_each(?2) AS given
 CROSS JOIN crawl_events e ON e.crawl_id = ?1 AND e.event_id = given.value
