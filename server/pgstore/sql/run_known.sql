-- run: which of these events are in a run's log, where and as what. Index: that of (crawl_id, event_id).
SELECT e.event_id, e.seq, e.event_type, e.payload::text
  FROM crawl_events e
 WHERE e.crawl_id = {{arg .Run}} AND e.tenant_id = {{arg .Tenant}} AND e.event_id = ANY ({{arg .IDs}}::uuid[])
