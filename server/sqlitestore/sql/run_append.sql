-- run: appends events to the log, in their order. The run is locked. A trigger refuses a number that is not the next
-- one, and any behind a terminal event.
INSERT INTO crawl_events (crawl_id, event_type, payload, created_at, event_id, seq, tenant_id)
SELECT {{arg .Run}}, e.value->>'type', e.value->>'text', {{arg .Now}}, e.value->>'id', {{arg .After}} + 1 + e.key, {{arg .Tenant}}
  FROM json_each({{arg .Events}}) e
 ORDER BY e.key
