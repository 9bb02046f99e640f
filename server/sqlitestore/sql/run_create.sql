-- run: inserts a run, unless the tenant has used its idempotency key, or has as many runs that wait as it may: then it
-- returns nothing. In a transaction that may write, so nobody else counts. What waits is PENDING, or a worker's that
-- was started by hand and that no worker has taken. No more rows are counted than there may be.
-- Index: that of the key; of (tenant_id, status, ...); of runs that a worker may claim.
INSERT INTO crawl_runs (tenant_id, app_package, device_config, max_steps, goal, crawler, idempotency_key, id, created_at)
SELECT {{arg .Tenant}}, {{arg .AppPackage}}, {{arg .Config}}, {{arg .MaxSteps}}, nullif({{arg .Goal}}, ''), {{arg .Crawler}},
       nullif({{arg .IdempotencyKey}}, ''), {{arg .ID}}, {{arg .Now}}
 WHERE {{if .Most}}(SELECT count(*) FROM (SELECT 1 FROM crawl_runs w WHERE w.tenant_id = {{arg .Tenant}} AND w.status = 'PENDING' LIMIT {{arg .Most}}))
     + (SELECT count(*) FROM (SELECT 1
                                FROM crawl_runs w INDEXED BY crawl_runs_waiting
                               WHERE w.tenant_id = {{arg .Tenant}} AND w.status = 'RUNNING' AND w.status IN ('PENDING', 'RUNNING')
                                 AND w.crawler <> 'external' AND w.lease_owner IS NULL
                               LIMIT {{arg .Most}}))
     < {{arg .Most}}{{else}}true{{end}}
ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING {{template "run_columns"}}, 0
