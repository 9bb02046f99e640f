-- endpoints: adds one unless there is one of its name. $1 name, $2 tenant, $3 URL, $4 secrets, $5 headers, $6 timeout
-- in milliseconds, $7 concurrency, $8 rate, $9 whether it is disabled, $10 why, $11 revision, $12 topics, $13 types.
-- Locks its row. Index: the primary key.
INSERT INTO outbox_endpoints (name, tenant_id, url, secrets, headers, timeout_ms, concurrency, rate, disabled_at,
                              disabled_reason, revision, topics, types)
VALUES ($1, nullif($2, ''), $3, $4::jsonb, $5::jsonb, nullif($6::int, 0), nullif($7::int, 0), nullif($8::float8, 0),
        CASE WHEN $9::bool THEN now() END, nullif($10, ''), $11, $12::jsonb, $13::jsonb)
ON CONFLICT (name) DO NOTHING
