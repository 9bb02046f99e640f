DO $do$
DECLARE
    back RECORD;
BEGIN
    FOR back IN SELECT undo FROM outbox_adopted WHERE table_name = '{{.}}' ORDER BY step DESC LOOP
        EXECUTE back.undo;
    END LOOP;
    DELETE FROM outbox_adopted WHERE table_name = '{{.}}';
    IF NOT EXISTS (SELECT FROM outbox_adopted) THEN
        DROP TABLE outbox_adopted;
    END IF;
END
$do$
