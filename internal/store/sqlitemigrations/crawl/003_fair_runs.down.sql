DROP INDEX crawl_runs_app_status;
DROP INDEX crawl_runs_app;
DROP INDEX crawl_runs_status;
DROP INDEX crawl_runs_held;
DROP INDEX crawl_runs_waiting;
