-- endpoints: adds one unless there is one of its name. Locks its row. Index: the primary key.
INSERT INTO outbox_endpoints (name, tenant_id, url, secrets, headers, timeout_ms, concurrency, rate, disabled_at,
                              disabled_reason, revision, topics, types)
VALUES ({{arg .Name}}, nullif({{arg .Tenant}}, ''), {{arg .URL}}, {{arg .SecretsJSON}}::jsonb, {{arg .HeadersJSON}}::jsonb,
        nullif({{arg .Milliseconds}}::int, 0), nullif({{arg .Concurrency}}::int, 0), nullif({{arg .Rate}}::float8, 0),
        CASE WHEN {{arg .Off}}::bool THEN now() END, nullif({{arg .Reason}}, ''), {{arg .Fresh}}, {{arg .TopicsJSON}}::jsonb, {{arg .TypesJSON}}::jsonb)
ON CONFLICT (name) DO NOTHING
