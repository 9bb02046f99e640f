-- The archive does not go with rows of tables that stay: an application's own, adopted or mapped. The rest goes with its
-- tables. This file is core's last, so that nothing of core has gone before. A table of runs may have its former name again. The server spells each way back; nothing is done before.
DO $do$
DECLARE
    adopted BOOLEAN := false;
    kept    TEXT;
BEGIN
    IF to_regclass('outbox_archive') IS NULL THEN
        RETURN;
    END IF;
    IF to_regclass('outbox_adopted') IS NOT NULL THEN
        adopted := EXISTS (SELECT FROM outbox_adopted WHERE table_name = 'outbox_events');
    END IF;
    SELECT string_agg(format(E'\n  %s rows of %s: WITH a AS (DELETE FROM outbox_archive WHERE table_name = %L RETURNING *) INSERT INTO %s SELECT r.* '
                             'FROM a, jsonb_populate_record(NULL::%s, %s) r ORDER BY a.archived_at DESC ON CONFLICT DO NOTHING',
                             a.rows, a.table_name, a.table_name, a.target, a.target,
                             CASE WHEN a.former THEN 'a.row || jsonb_build_object(''run_id'', a.row -> ''crawl_id'')' ELSE 'a.row' END), '' ORDER BY a.table_name)
      INTO kept
      FROM (SELECT counted.*, CASE WHEN former THEN 'run_outbox'
                                   ELSE (SELECT string_agg(quote_ident(part), '.' ORDER BY n) FROM unnest(string_to_array(counted.table_name, '.')) WITH ORDINALITY p (part, n)) END AS target
              FROM (SELECT o.table_name, count(*) AS rows,
                           o.table_name = 'crawl_outbox' AND to_regclass('crawl_outbox') IS NULL AND to_regclass('run_outbox') IS NOT NULL AS former
                      FROM outbox_archive o
                     GROUP BY o.table_name) counted) a
     WHERE CASE WHEN a.table_name = 'outbox_events' THEN adopted
                WHEN a.table_name IN ('crawl_outbox', 'event_outbox') THEN to_regclass(a.target) IS NOT NULL
                ELSE true END;
    IF kept IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_in_use',
            MESSAGE = 'outbox_archive holds delivered rows of tables that stay, which would be gone with it. Put them back with the statement below, '
                      'or drop them with DELETE FROM outbox_archive:' || kept;
    END IF;
END
$do$;
DROP TABLE IF EXISTS outbox_archive;
DROP TABLE IF EXISTS outbox_maintenance;
