-- endpoints: all of them. Locks nothing. Index: outbox_endpoints's primary key, or none.
SELECT name, coalesce(tenant_id, ''), url, secrets, headers, coalesce(timeout_ms, 0), coalesce(concurrency, 0),
       coalesce(rate, 0), disabled_at, coalesce(disabled_reason, ''), revision, topics, types
  FROM outbox_endpoints
 ORDER BY name
