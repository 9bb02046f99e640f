-- The policies of roles.sql that compare the column go with it. Row-level security stays on where it is: without them a
-- gateway sees nothing, rather than the runs of all tenants. `outbox migrate roles` makes them again, after up.
DO $do$
DECLARE
    policy RECORD;
BEGIN
    FOR policy IN SELECT p.polname, p.polrelid::regclass AS on_table
                    FROM pg_policy p
                    JOIN pg_attribute a ON a.attrelid = p.polrelid AND a.attname = 'tenant_id'
                   WHERE p.polrelid IN (to_regclass('crawl_runs'), to_regclass('crawl_events'), to_regclass('crawl_outbox'))
                     AND EXISTS (SELECT FROM pg_depend d
                                  WHERE d.classid = 'pg_policy'::regclass AND d.objid = p.oid
                                    AND d.refobjid = p.polrelid AND d.refobjsubid = a.attnum) LOOP
        EXECUTE format('DROP POLICY %I ON %s', policy.polname, policy.on_table);
    END LOOP;
END
$do$;

DROP TRIGGER IF EXISTS crawl_outbox_tenant ON crawl_outbox;
DROP FUNCTION IF EXISTS crawl_outbox_tenant();

-- As 001 made it.
CREATE OR REPLACE FUNCTION crawl_events_append() RETURNS trigger
    LANGUAGE plpgsql AS $fn$
DECLARE
    last_seq  BIGINT;
    last_type VARCHAR(50);
BEGIN
    PERFORM 1 FROM crawl_runs WHERE id = NEW.crawl_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        -- The foreign key says it better (23503); it is checked after the row is in, which needs a number.
        NEW.seq := coalesce(NEW.seq, 1);
        RETURN NEW;
    END IF;

    SELECT seq, event_type INTO last_seq, last_type
      FROM crawl_events WHERE crawl_id = NEW.crawl_id ORDER BY seq DESC LIMIT 1;
    last_seq := coalesce(last_seq, 0);

    IF last_type IN ('RUN_COMPLETED', 'RUN_FAILED', 'RUN_CANCELLED') THEN
        RAISE EXCEPTION 'append % to crawl run %: the run ended with %', NEW.event_type, NEW.crawl_id, last_type
            USING ERRCODE = 'check_violation', TABLE = 'crawl_events', CONSTRAINT = 'crawl_events_after_terminal';
    END IF;
    IF NEW.seq IS NULL THEN
        NEW.seq := last_seq + 1;
    ELSIF NEW.seq <> last_seq + 1 THEN
        RAISE EXCEPTION 'append % to crawl run %: seq is %, the next one is %', NEW.event_type, NEW.crawl_id, NEW.seq, last_seq + 1
            USING ERRCODE = 'check_violation', TABLE = 'crawl_events', CONSTRAINT = 'crawl_events_seq_gap';
    END IF;
    RETURN NEW;
END
$fn$;

ALTER TABLE IF EXISTS crawl_outbox DROP COLUMN IF EXISTS tenant_id;
DROP INDEX IF EXISTS crawl_events_event_id_key;
ALTER TABLE IF EXISTS crawl_events DROP COLUMN IF EXISTS tenant_id;
ALTER TABLE IF EXISTS crawl_runs
    DROP COLUMN IF EXISTS tenant_id, DROP COLUMN IF EXISTS crawler, DROP COLUMN IF EXISTS idempotency_key,
    DROP COLUMN IF EXISTS lease_owner, DROP COLUMN IF EXISTS lease_epoch, DROP COLUMN IF EXISTS lease_expires_at,
    DROP COLUMN IF EXISTS next_node, DROP COLUMN IF EXISTS node_state, DROP COLUMN IF EXISTS steps_done, DROP COLUMN IF EXISTS node_attempts;
