DROP VIEW IF EXISTS run_outbox;
DROP TABLE IF EXISTS crawl_outbox;
