-- run: inserts a run, unless the tenant has used its idempotency key, or has as many runs that wait as it may: then it
-- returns nothing. Waits for an open transaction that inserts the same key; one process has its callers take turns.
-- What waits is PENDING, or a worker's that was started by hand and that no worker has taken. No more rows are
-- counted than there may be.
-- Index: that of the key; of PENDING runs; of runs that a worker may claim.
INSERT INTO crawl_runs AS r (tenant_id, app_package, device_config, max_steps, goal, crawler, idempotency_key)
SELECT {{arg .Tenant}}::text, {{arg .AppPackage}}::text, {{arg .Config}}::text::jsonb, {{arg .MaxSteps}}::int,
       nullif({{arg .Goal}}::text, ''), {{arg .Crawler}}::text, nullif({{arg .IdempotencyKey}}::text, '')
{{- if .Most}}
 WHERE (SELECT count(*) FROM (SELECT FROM crawl_runs w WHERE w.tenant_id = {{arg .Tenant}}::text AND w.status = 'PENDING' LIMIT {{arg .Most}}) AS pending)
     + (SELECT count(*) FROM (SELECT
                                FROM crawl_runs w
                               WHERE w.tenant_id = {{arg .Tenant}}::text AND w.status = 'RUNNING'
                                 AND w.crawler <> 'external' AND w.lease_owner IS NULL
                               LIMIT {{arg .Most}}) AS started)
     < {{arg .Most}}
{{- end}}
ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING {{template "run_columns"}}, 0::bigint
