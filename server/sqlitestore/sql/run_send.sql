-- run: gives the outbox what run_append.sql has appended. Index: the unique one on (crawl_id, seq).
INSERT INTO crawl_outbox (crawl_id, event_type, payload, created_at, event_id, seq, tenant_id)
SELECT e.crawl_id, e.event_type, e.payload, e.created_at, e.event_id, e.seq, e.tenant_id
  FROM crawl_events e
 WHERE e.crawl_id = {{arg .Run}} AND e.seq > {{arg .After}}
 ORDER BY e.seq
