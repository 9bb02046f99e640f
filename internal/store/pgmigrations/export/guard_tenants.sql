-- export: before crawl/003 is taken away; see keepTenants.
DO $do$
BEGIN
    -- The column that says whose runs are whose goes: the runs of other tenants than default would become default's.
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('crawl_runs') AND attname = 'tenant_id' AND NOT attisdropped) THEN
        IF EXISTS (SELECT FROM crawl_runs WHERE tenant_id <> 'default') THEN
            RAISE EXCEPTION 'runs of other tenants than default would become default''s'
                USING ERRCODE = 'object_in_use',
                      HINT = 'Delete them first: DELETE FROM crawl_runs WHERE tenant_id <> ''default''.';
        END IF;
    END IF;
END
$do$;
