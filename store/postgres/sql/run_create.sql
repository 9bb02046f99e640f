-- run: inserts a run, unless the tenant has used its idempotency key: then it returns nothing. $1 tenant, $2 app, $3 device configuration, $4 steps, $5 goal,
-- $6 crawler, $7 key ('': none). Waits for an open transaction that inserts the same key. Index: that of the key.
INSERT INTO crawl_runs AS r (tenant_id, app_package, device_config, max_steps, goal, crawler, idempotency_key)
VALUES ($1, $2, $3::text::jsonb, $4, nullif($5::text, ''), $6, nullif($7::text, ''))
ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING {{template "run_columns"}}, 0::bigint
