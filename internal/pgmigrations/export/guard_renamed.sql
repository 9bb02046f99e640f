-- export: before crawl/001.
DO $do$
BEGIN
    -- FR-005's tables, from before crawl's names, would stay beside the new ones.
    IF EXISTS (SELECT FROM pg_class
                WHERE relnamespace = to_regnamespace(quote_ident(current_schema())) AND relname IN ('run_outbox', 'run_events') AND relkind IN ('r', 'p')) THEN
        RAISE EXCEPTION 'table run_outbox or run_events is there already, under the name of before'
            USING ERRCODE = 'duplicate_table',
                  HINT = CASE WHEN to_regclass('outbox_lanes') IS NULL OR to_regclass('outbox_migrations_core') IS NOT NULL
                         THEN 'Adopt it: `outbox migrate up`, then these files again'
                         ELSE 'Adopt it: `outbox migrate up --take-over`, then these files again' END
                         || ' (docs/guide/adopting.md, "With your own migration tool").';
    END IF;
END
$do$;
