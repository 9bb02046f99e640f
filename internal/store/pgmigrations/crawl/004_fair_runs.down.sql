CREATE INDEX IF NOT EXISTS crawl_runs_claimable ON crawl_runs (created_at, id) WHERE status IN ('PENDING', 'RUNNING') AND crawler <> 'external';
DROP INDEX IF EXISTS crawl_runs_waiting, crawl_runs_held, crawl_runs_app,
    crawl_runs_pending, crawl_runs_running, crawl_runs_completed, crawl_runs_failed, crawl_runs_cancelled,
    crawl_runs_app_pending, crawl_runs_app_running, crawl_runs_app_completed, crawl_runs_app_failed, crawl_runs_app_cancelled;
