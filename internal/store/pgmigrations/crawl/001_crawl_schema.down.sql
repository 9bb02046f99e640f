-- Made by roles.sql. They compare the column that an adoption has added.
DROP POLICY IF EXISTS crawl_events_gateway ON crawl_events;
DROP POLICY IF EXISTS crawl_runs_gateway ON crawl_runs;

-- A table that was there before is given back as it was (outbox_adopted), not dropped.
DO $do$
DECLARE
    own  TEXT;
    back RECORD;
BEGIN
    FOREACH own IN ARRAY ARRAY['crawl_events', 'crawl_runs'] LOOP
        IF to_regclass('outbox_adopted') IS NOT NULL THEN
            FOR back IN SELECT undo FROM outbox_adopted WHERE table_name = own ORDER BY step DESC LOOP
                EXECUTE back.undo;
            END LOOP;
            DELETE FROM outbox_adopted WHERE table_name = own;
            IF FOUND THEN
                IF NOT EXISTS (SELECT FROM outbox_adopted) THEN
                    DROP TABLE outbox_adopted;
                END IF;
                CONTINUE;
            END IF;
        END IF;
        EXECUTE format('DROP TABLE IF EXISTS %I', own);
    END LOOP;
    BEGIN
        DROP FUNCTION IF EXISTS crawl_events_append();
    EXCEPTION WHEN dependent_objects_still_exist THEN
        NULL;   -- the trigger of a table that stays
    END;
    BEGIN
        DROP TYPE IF EXISTS crawl_status;
    EXCEPTION WHEN dependent_objects_still_exist THEN
        NULL;   -- the type of a table that stays
    END;
END
$do$;
