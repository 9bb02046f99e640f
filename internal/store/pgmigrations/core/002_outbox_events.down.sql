-- The policies of roles.sql for producers. NAME_all is there only if roles.sql has switched row-level security on.
DO $do$
DECLARE
    policy RECORD;
BEGIN
    FOR policy IN SELECT polname AS name FROM pg_policy
                   WHERE polrelid = to_regclass('outbox_events')
                     AND (polname LIKE '% must have its initial value' OR polname IN ('producers see the row that they insert', 'outbox_events_all')) LOOP
        EXECUTE format('DROP POLICY %I ON outbox_events', policy.name);
        IF policy.name = 'outbox_events_all' THEN
            ALTER TABLE outbox_events DISABLE ROW LEVEL SECURITY;
        END IF;
    END LOOP;
END
$do$;

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
