-- run: which of these events are in a run's log, where and as what. Index: that of (crawl_id, event_id).
SELECT e.event_id, e.seq, e.event_type, e.payload
  FROM json_each({{arg .IDs}}) AS given
 CROSS JOIN crawl_events e ON e.crawl_id = {{arg .Run}} AND e.event_id = given.value
