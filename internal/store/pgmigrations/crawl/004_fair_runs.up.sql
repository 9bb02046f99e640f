-- Additive, in no seed: indexes for what tenants share. Each is built as those of 003: writers wait meanwhile.

-- What workers may claim, by tenant and oldest first (run_claim.sql). It takes the place of crawl_runs_claimable,
-- which knows no tenant: with both, the planner may choose the other one and read through the queue of one tenant to
-- find the few runs of the next.
CREATE INDEX IF NOT EXISTS crawl_runs_waiting ON crawl_runs (tenant_id, created_at, id) WHERE status IN ('PENDING', 'RUNNING') AND crawler <> 'external';
DROP INDEX IF EXISTS crawl_runs_claimable;
-- How many runs of each tenant workers have. Not the lease's end, so that a renewal changes no index (HOT); and
-- crawler, which a renewal does not name, so that the planner looks for its run by the primary key.
CREATE INDEX IF NOT EXISTS crawl_runs_held ON crawl_runs (tenant_id) WHERE lease_owner IS NOT NULL AND crawler <> 'external';

-- Lists by app, by status and by both (run_list.sql): a filter that matches nothing reads nothing. The PENDING ones
-- are also counted (run_create.sql). An index for each status, in one of which a run is: as a column of one index the
-- status would not be looked up under row-level security, because the comparison of enums is not leakproof.
CREATE INDEX IF NOT EXISTS crawl_runs_app ON crawl_runs (tenant_id, app_package, created_at DESC, id DESC);
DO $do$
DECLARE
    state TEXT;
BEGIN
    FOREACH state IN ARRAY ARRAY['PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED'] LOOP
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON crawl_runs (tenant_id, created_at DESC, id DESC) WHERE status = %L', 'crawl_runs_' || lower(state), state);
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON crawl_runs (tenant_id, app_package, created_at DESC, id DESC) WHERE status = %L', 'crawl_runs_app_' || lower(state), state);
    END LOOP;
END
$do$;
