-- run: a page of a run's log. ?1 tenant, ?2 run, ?3 number after which it begins, ?4 limit. Locks nothing. Rows are
-- read as they are asked for, so Runs.ListEvents stops where it has enough bytes. Index: the unique one on (crawl_id,
-- seq), in order.
SELECT e.seq, e.event_id, e.event_type, e.created_at, e.payload
  FROM crawl_events e
 WHERE e.crawl_id = ?2 AND e.tenant_id = ?1 AND e.seq > ?3
 ORDER BY e.seq
 LIMIT ?4
