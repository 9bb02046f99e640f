DROP TRIGGER IF EXISTS outbox_events_refuse ON outbox_events;
DROP FUNCTION IF EXISTS outbox_events_refuse();

-- A table that was there before is given back as it was (outbox_adopted), not dropped.
DO $do$
DECLARE
    back RECORD;
BEGIN
    IF to_regclass('outbox_adopted') IS NOT NULL THEN
        FOR back IN SELECT undo FROM outbox_adopted WHERE table_name = 'outbox_events' ORDER BY step DESC LOOP
            EXECUTE back.undo;
        END LOOP;
        DELETE FROM outbox_adopted WHERE table_name = 'outbox_events';
        IF FOUND THEN
            IF NOT EXISTS (SELECT FROM outbox_adopted) THEN
                DROP TABLE outbox_adopted;
            END IF;
            RETURN;
        END IF;
    END IF;
    DROP TABLE IF EXISTS outbox_events;
END
$do$;
