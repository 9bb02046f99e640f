-- export: before crawl/001.
DO $do$
BEGIN
    -- FR-005's tables, from before crawl's names, would stay beside the new ones.
    IF EXISTS (SELECT FROM pg_class
                WHERE relnamespace = to_regnamespace(quote_ident(current_schema())) AND relname IN ('run_outbox', 'run_events') AND relkind IN ('r', 'p')) THEN
        RAISE EXCEPTION 'table run_outbox or run_events is there already, under the name of before'
            USING ERRCODE = 'duplicate_table',
                  HINT = {{template "adopt_hint"}};
    END IF;
END
$do$;
