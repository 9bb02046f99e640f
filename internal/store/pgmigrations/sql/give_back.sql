DO $do$
DECLARE
    back RECORD;
BEGIN
    IF (SELECT m.rolsuper AND NOT o.rolsuper
          FROM pg_catalog.pg_roles m, pg_catalog.pg_class c JOIN pg_catalog.pg_roles o ON o.oid = c.relowner
         WHERE m.rolname = current_user AND c.oid = 'outbox_adopted'::pg_catalog.regclass) THEN
        RAISE EXCEPTION 'outbox_adopted, whose statements give a table back, belongs to a role that is no superuser'
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Run outbox migrate down as the owner of outbox_adopted and of the table, not as a superuser.';
    END IF;
    FOR back IN SELECT undo FROM outbox_adopted WHERE table_name = '{{.}}' ORDER BY step DESC LOOP
        EXECUTE back.undo;
    END LOOP;
    DELETE FROM outbox_adopted WHERE table_name = '{{.}}';
    IF NOT EXISTS (SELECT FROM outbox_adopted) THEN
        DROP TABLE outbox_adopted;
    END IF;
END
$do$
