-- migrate: runs that would lose their tenant.
SELECT count(*) FROM crawl_runs WHERE tenant_id <> 'default'
