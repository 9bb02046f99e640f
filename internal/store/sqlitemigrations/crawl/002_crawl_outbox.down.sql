DROP VIEW run_outbox;
DROP TABLE crawl_outbox;
