DROP TABLE IF EXISTS crawl_events;
DROP FUNCTION IF EXISTS crawl_events_append();
DROP TABLE IF EXISTS crawl_runs;
DROP TYPE IF EXISTS crawl_status;
