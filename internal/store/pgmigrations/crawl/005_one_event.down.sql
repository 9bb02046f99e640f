-- As 003 made it. Rows keep the number and the id that they were given.
CREATE OR REPLACE FUNCTION crawl_outbox_tenant() RETURNS trigger
    LANGUAGE plpgsql AS $fn$
BEGIN
    NEW.tenant_id := coalesce((SELECT r.tenant_id FROM crawl_runs r WHERE r.id = NEW.crawl_id), '');
    RETURN NEW;
END
$fn$;

DROP VIEW IF EXISTS crawl_events_written;
