-- endpoints: adds one unless there is one of its name. Index: the primary key.
INSERT INTO outbox_endpoints (name, tenant_id, url, secrets, headers, timeout_ms, concurrency, rate, disabled_at,
                              disabled_reason, revision, created_at, updated_at, topics, types)
VALUES ({{arg .Name}}, nullif({{arg .Tenant}}, ''), {{arg .URL}}, {{arg .SecretsJSON}}, {{arg .HeadersJSON}},
        nullif({{arg .Milliseconds}}, 0), nullif({{arg .Concurrency}}, 0), nullif({{arg .Rate}}, 0),
        CASE WHEN {{arg .Off}} THEN {{arg .Now}} END, nullif({{arg .Reason}}, ''), {{arg .Fresh}}, {{arg .Now}}, {{arg .Now}},
        {{arg .TopicsJSON}}, {{arg .TypesJSON}})
ON CONFLICT (name) DO NOTHING
