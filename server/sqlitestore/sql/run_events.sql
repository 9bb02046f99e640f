-- run: a page of a run's log. Locks nothing. Rows are
-- read as they are asked for, so ListEvents stops where it has enough bytes. Index: the unique one on (crawl_id,
-- seq), in order.
SELECT e.seq, e.event_id, e.event_type, e.created_at, e.payload
  FROM crawl_events e
 WHERE e.crawl_id = {{arg .Run}} AND e.tenant_id = {{arg .Tenant}} AND e.seq > {{arg .After}}
 ORDER BY e.seq
 LIMIT {{arg .Limit}}
