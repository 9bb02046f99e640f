-- run: inserts a run, unless the tenant has used its idempotency key: then it returns nothing. ?1 tenant, ?2 app, ?3 device configuration, ?4 steps, ?5 goal,
-- ?6 crawler, ?7 key ('': none), ?8 id, ?9 now. In a transaction that may write. Index: that of the key.
INSERT INTO crawl_runs (tenant_id, app_package, device_config, max_steps, goal, crawler, idempotency_key, id, created_at)
VALUES (?1, ?2, ?3, ?4, nullif(?5, ''), ?6, nullif(?7, ''), ?8, ?9)
ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING {{template "run_columns"}}, 0
