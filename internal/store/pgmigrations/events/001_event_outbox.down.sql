-- The policies of roles.sql for producers. NAME_all is there only if roles.sql has switched row-level security on.
DO $do$
DECLARE
    policy RECORD;
BEGIN
    FOR policy IN SELECT polname AS name FROM pg_policy
                   WHERE polrelid = to_regclass('event_outbox')
                     AND (polname LIKE '% must have its initial value' OR polname IN ('producers see the row that they insert', 'event_outbox_all')) LOOP
        EXECUTE format('DROP POLICY %I ON event_outbox', policy.name);
        IF policy.name = 'event_outbox_all' THEN
            ALTER TABLE event_outbox DISABLE ROW LEVEL SECURITY;
        END IF;
    END LOOP;
END
$do$;

DROP TRIGGER IF EXISTS event_outbox_refuse ON event_outbox;
DROP FUNCTION IF EXISTS event_outbox_refuse();

-- A table that was there before is given back as it was (outbox_adopted), not dropped. So is a function. One that was
-- there without the table is told by its body, which is not that of the file.
DO $do$
DECLARE
    back RECORD;
    kept BOOLEAN := false;
    ours REGPROCEDURE;
BEGIN
    IF to_regclass('outbox_adopted') IS NOT NULL THEN
        kept := EXISTS (SELECT FROM outbox_adopted WHERE table_name = 'event_outbox' AND object = 'kept function purge_event_outbox');
    END IF;
    SELECT oid INTO ours
      FROM pg_proc
     WHERE oid = to_regprocedure('purge_event_outbox(int)') AND strpos(prosrc, 'purge_event_outbox: p_older_than_days must be 0 or more') > 0;
    IF ours IS NOT NULL AND NOT kept THEN
        EXECUTE 'DROP FUNCTION ' || ours;
    END IF;
    IF to_regclass('outbox_adopted') IS NOT NULL THEN
        FOR back IN SELECT undo FROM outbox_adopted WHERE table_name = 'event_outbox' ORDER BY step DESC LOOP
            EXECUTE back.undo;
        END LOOP;
        DELETE FROM outbox_adopted WHERE table_name = 'event_outbox';
        IF FOUND THEN
            IF NOT EXISTS (SELECT FROM outbox_adopted) THEN
                DROP TABLE outbox_adopted;
            END IF;
            RETURN;
        END IF;
    END IF;
    DROP TABLE IF EXISTS event_outbox;
END
$do$;
