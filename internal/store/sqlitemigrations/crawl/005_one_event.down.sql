-- As 002 made it. Rows keep the number and the id that they were given.
DROP TRIGGER crawl_outbox_tenant;
CREATE TRIGGER crawl_outbox_tenant AFTER INSERT ON crawl_outbox WHEN NEW.seq IS NULL OR NEW.tenant_id = ''
BEGIN
    UPDATE crawl_outbox SET tenant_id = coalesce((SELECT r.tenant_id FROM crawl_runs r WHERE r.id = NEW.crawl_id), '') WHERE id = NEW.id;
END;
