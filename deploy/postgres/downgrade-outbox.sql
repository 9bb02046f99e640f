-- Takes upgrade-outbox.sql back: the table outbox is again what it was before ADR-004, with the rows of now.
--
--     psql -v ON_ERROR_STOP=1 -f downgrade-outbox.sql "$DATABASE_URL"
--
-- as the table's owner. Stop the relay first, and whoever writes the new columns alone. DEAD becomes ERR, FAILED
-- becomes NEW, and retry_cnt is what the relay has counted. Stopped at any point, the file can be run again and goes
-- on.

SET lock_timeout = '2s';

DO $do$
BEGIN
    IF to_regclass('outbox_upgraded') IS NULL THEN
        RAISE EXCEPTION 'upgrade-outbox.sql has not been run here: there is no table outbox_upgraded';
    END IF;
END
$do$;
ALTER TABLE outbox DROP CONSTRAINT IF EXISTS outbox_adr004;
DROP TRIGGER IF EXISTS outbox_settle ON outbox;
SET lock_timeout = 0;
DO $do$
BEGIN
    LOOP
        UPDATE outbox
           SET status    = CASE status WHEN 'DEAD' THEN 'ERR' WHEN 'FAILED' THEN 'NEW' ELSE status END,
               retry_cnt = coalesce(retry_count, retry_cnt)
         WHERE id IN (SELECT id FROM outbox
                       WHERE status IN ('DEAD', 'FAILED') OR retry_count <> retry_cnt LIMIT 2000 FOR NO KEY UPDATE);
        EXIT WHEN NOT FOUND;
        COMMIT;
    END LOOP;
END
$do$;
SET lock_timeout = '2s';
DO $do$
DECLARE
    c record;
BEGIN
    LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE;
    DROP TRIGGER IF EXISTS outbox_fill ON outbox;
    DROP FUNCTION IF EXISTS outbox_fill();
    DROP FUNCTION IF EXISTS outbox_settle();
    DROP INDEX IF EXISTS outbox_undelivered, outbox_waiting, outbox_tenants, outbox_upgrade;
    FOR c IN SELECT attname AS name FROM pg_attribute
              WHERE attrelid = 'outbox'::regclass AND attnum > 0 AND NOT attisdropped
                AND attname IN ('event_topic', 'occurred_at', 'aggregate_type', 'source_bc', 'destination_topics', 'metadata',
                                'next_retry_at', 'error_message', 'processed_at', 'schema_version', 'retry_count', 'position',
                                'error_history', 'delivered_to', 'generation')
                AND attname NOT IN (SELECT name FROM outbox_upgraded WHERE kind = 'column') LOOP
        EXECUTE pg_catalog.format('ALTER TABLE outbox DROP COLUMN %I', c.name);   -- the sequence goes with position
    END LOOP;
    -- A narrower type reads the table, and so does a check.
    FOR c IN SELECT definition FROM outbox_upgraded u JOIN pg_attribute a ON a.attname = u.name AND a.attrelid = 'outbox'::regclass
              WHERE u.kind = 'column' AND u.name = 'status' AND u.definition <> pg_catalog.format_type(a.atttypid, a.atttypmod) LOOP
        EXECUTE 'ALTER TABLE outbox ALTER COLUMN status TYPE ' || c.definition;
    END LOOP;
    FOR c IN SELECT name, definition FROM outbox_upgraded WHERE kind = 'check' LOOP
        EXECUTE pg_catalog.format('ALTER TABLE outbox ADD CONSTRAINT %I %s', c.name, c.definition);
    END LOOP;
    ALTER TABLE outbox RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
                              autovacuum_analyze_scale_factor, autovacuum_vacuum_cost_limit);
    DROP TABLE outbox_upgraded;
END
$do$;
