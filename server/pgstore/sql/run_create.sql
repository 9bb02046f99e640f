-- run: inserts a run, unless the tenant has used its idempotency key, or has $8 runs that wait (0 or less: as many as
-- it likes): then it returns nothing. $1 tenant, $2 app, $3 device configuration, $4 steps, $5 goal, $6 crawler, $7
-- key ('': none). Waits for an open transaction that inserts the same key; one process has its callers take turns.
-- What waits is PENDING, or a worker's that was started by hand and that no worker has taken. No more rows are
-- counted than there may be.
-- Index: that of the key; of PENDING runs; of runs that a worker may claim.
INSERT INTO crawl_runs AS r (tenant_id, app_package, device_config, max_steps, goal, crawler, idempotency_key)
SELECT $1::text, $2, $3::text::jsonb, $4::int, nullif($5::text, ''), $6, nullif($7::text, '')
 WHERE $8::int <= 0
    OR (SELECT count(*) FROM (SELECT FROM crawl_runs w WHERE w.tenant_id = $1::text AND w.status = 'PENDING' LIMIT $8) AS pending)
     + (SELECT count(*) FROM (SELECT
                                FROM crawl_runs w
                               WHERE w.tenant_id = $1::text AND w.status = 'RUNNING'
                                 AND w.crawler <> 'external' AND w.lease_owner IS NULL
                               LIMIT $8) AS started)
     < $8
ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING {{template "run_columns"}}, 0::bigint
