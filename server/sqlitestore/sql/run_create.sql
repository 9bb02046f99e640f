-- run: inserts a run, unless the tenant has used its idempotency key, or has ?10 runs that wait (0 or less: as many
-- as it likes): then it returns nothing. ?1 tenant, ?2 app, ?3 device configuration, ?4 steps, ?5 goal, ?6 crawler,
-- ?7 key ('': none), ?8 id, ?9 now. In a transaction that may write, so nobody else counts. What waits is PENDING, or
-- a worker's that was started by hand and that no worker has taken. No more rows are counted than there may be.
-- Index: that of the key; of (tenant_id, status, ...); of runs that a worker may claim.
INSERT INTO crawl_runs (tenant_id, app_package, device_config, max_steps, goal, crawler, idempotency_key, id, created_at)
SELECT ?1, ?2, ?3, ?4, nullif(?5, ''), ?6, nullif(?7, ''), ?8, ?9
 WHERE ?10 <= 0
    OR (SELECT count(*) FROM (SELECT 1 FROM crawl_runs w WHERE w.tenant_id = ?1 AND w.status = 'PENDING' LIMIT ?10))
     + (SELECT count(*) FROM (SELECT 1
                                FROM crawl_runs w INDEXED BY crawl_runs_waiting
                               WHERE w.tenant_id = ?1 AND w.status = 'RUNNING' AND w.status IN ('PENDING', 'RUNNING')
                                 AND w.crawler <> 'external' AND w.lease_owner IS NULL
                               LIMIT ?10))
     < ?10
ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING {{template "run_columns"}}, 0
