DROP TABLE crawl_events;
DROP TABLE crawl_runs;
