-- run: the last event of a run that is locked. Index: the unique one on (crawl_id, seq).
SELECT e.seq, e.event_type
  FROM crawl_events e
 WHERE e.crawl_id = {{arg .Run}}
 ORDER BY e.seq DESC
 LIMIT 1
