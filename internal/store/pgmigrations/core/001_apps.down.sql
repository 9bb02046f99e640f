-- No CASCADE: what still points here should stop the drop, not vanish with it.
-- A table that was there before is given back as it was (outbox_adopted), not dropped.
DO $do$
DECLARE
    back RECORD;
BEGIN
    IF to_regclass('outbox_adopted') IS NOT NULL THEN
        FOR back IN SELECT undo FROM outbox_adopted WHERE table_name = 'apps' ORDER BY step DESC LOOP
            EXECUTE back.undo;
        END LOOP;
        DELETE FROM outbox_adopted WHERE table_name = 'apps';
        IF FOUND THEN
            IF NOT EXISTS (SELECT FROM outbox_adopted) THEN
                DROP TABLE outbox_adopted;
            END IF;
            RETURN;
        END IF;
    END IF;
    DROP TABLE IF EXISTS apps;
END
$do$;
DO $do$
BEGIN
    DROP FUNCTION IF EXISTS outbox_uuidv7();
EXCEPTION WHEN dependent_objects_still_exist THEN
    NULL;   -- a default of a table that stays
END
$do$;
