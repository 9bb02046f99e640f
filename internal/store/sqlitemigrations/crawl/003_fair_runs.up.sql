-- Additive, in no seed: indexes for what tenants share. As crawl/004_fair_runs of PostgreSQL, but that
-- crawl_runs_claimable stays: statements of the program before name it, and a process of it may have the file open.

CREATE INDEX crawl_runs_waiting ON crawl_runs (tenant_id, created_at, id) WHERE status IN ('PENDING', 'RUNNING') AND crawler <> 'external';
CREATE INDEX crawl_runs_held ON crawl_runs (tenant_id) WHERE lease_owner IS NOT NULL AND crawler <> 'external';

CREATE INDEX crawl_runs_status ON crawl_runs (tenant_id, status, created_at DESC, id DESC);
CREATE INDEX crawl_runs_app ON crawl_runs (tenant_id, app_package, created_at DESC, id DESC);
CREATE INDEX crawl_runs_app_status ON crawl_runs (tenant_id, app_package, status, created_at DESC, id DESC);
