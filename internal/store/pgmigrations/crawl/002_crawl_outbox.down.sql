-- The policies of roles.sql for producers. NAME_all is there only if roles.sql has switched row-level security on.
DO $do$
DECLARE
    policy RECORD;
BEGIN
    FOR policy IN SELECT polname AS name FROM pg_policy
                   WHERE polrelid = to_regclass('crawl_outbox')
                     AND (polname LIKE '% must have its initial value' OR polname IN ('producers see the row that they insert', 'crawl_outbox_all')) LOOP
        EXECUTE format('DROP POLICY %I ON crawl_outbox', policy.name);
        IF policy.name = 'crawl_outbox_all' THEN
            ALTER TABLE crawl_outbox DISABLE ROW LEVEL SECURITY;
        END IF;
    END LOOP;
END
$do$;

DROP TRIGGER IF EXISTS crawl_outbox_tenant ON crawl_outbox;
DROP FUNCTION IF EXISTS crawl_outbox_tenant();
DROP VIEW IF EXISTS run_outbox, crawl_events_written;
-- Made by roles.sql. It compares the column that an adoption has added.
DROP POLICY IF EXISTS crawl_outbox_gateway ON crawl_outbox;

-- A table that was there before is given back as it was (outbox_adopted), not dropped.
DO $do$
DECLARE
    back RECORD;
BEGIN
    IF to_regclass('outbox_adopted') IS NOT NULL THEN
        FOR back IN SELECT undo FROM outbox_adopted WHERE table_name = 'crawl_outbox' ORDER BY step DESC LOOP
            EXECUTE back.undo;
        END LOOP;
        DELETE FROM outbox_adopted WHERE table_name = 'crawl_outbox';
        IF FOUND THEN
            IF NOT EXISTS (SELECT FROM outbox_adopted) THEN
                DROP TABLE outbox_adopted;
            END IF;
            RETURN;
        END IF;
    END IF;
    DROP TABLE IF EXISTS crawl_outbox;
END
$do$;
