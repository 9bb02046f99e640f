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
