-- Upgrades the table outbox of before ADR-004 (id, tenant_id, aggregate_id, type, schema_id, schema_ver, payload,
-- status, retry_cnt, created_at) to the columns of outbox_events, so that a relay can serve it:
--
--     psql -v ON_ERROR_STOP=1 -f upgrade-outbox.sql "$DATABASE_URL"
--
-- as the table's owner, after `outbox migrate up`. Whoever writes the old columns goes on: nothing is renamed, no type
-- changes but that status becomes wide enough for FAILED, and a trigger fills the new columns from the old ones, and
-- type from event_topic. What publishes from the table now must stop before the relay starts. ERR becomes DEAD. A SENT
-- row gets the time at which it was written as its time of delivery.
-- No statement holds a lock while rows are read or filled; each waits 2 s at most for one. Stopped at any point, the
-- file can be run again and goes on. downgrade-outbox.sql takes it back. For a table of another name replace outbox.

SET lock_timeout = '2s';

-- Nothing is begun that could not be finished.
DO $do$
DECLARE
    status_unknown bigint;
    no_topic       bigint;
    no_time        bigint;
BEGIN
    SELECT count(*) FILTER (WHERE status IS NULL OR status::text NOT IN ('NEW', 'SENT', 'ERR', 'FAILED', 'DEAD')),
           count(*) FILTER (WHERE type IS NULL OR length(type) > 150),
           count(*) FILTER (WHERE created_at IS NULL)
      INTO status_unknown, no_topic, no_time FROM outbox;
    IF status_unknown + no_topic + no_time > 0 THEN
        RAISE EXCEPTION 'outbox cannot be upgraded: % rows have a status other than NEW, SENT and ERR, % no type or one above 150 characters, % no created_at',
            status_unknown, no_topic, no_time USING HINT = 'Mend these rows first. Nothing was changed.';
    END IF;
END
$do$;

-- The columns, the trigger and the wider status, in one short transaction that touches no row. What it was before is
-- kept in outbox_upgraded, for the way back.
DO $do$
DECLARE
    clock text := (SELECT pg_catalog.format_type(atttypid, atttypmod) FROM pg_attribute
                    WHERE attrelid = 'outbox'::regclass AND attname = 'created_at');
    c     record;
BEGIN
    IF to_regclass('outbox_upgraded') IS NOT NULL THEN
        RETURN;
    END IF;
    LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE;
    CREATE TABLE outbox_upgraded (kind text NOT NULL, name text NOT NULL, definition text NOT NULL);
    INSERT INTO outbox_upgraded
    SELECT 'column', attname, pg_catalog.format_type(atttypid, atttypmod)
      FROM pg_attribute WHERE attrelid = 'outbox'::regclass AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT 'check', k.conname, pg_get_constraintdef(k.oid)
      FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attname = 'status'
     WHERE k.conrelid = 'outbox'::regclass AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum];
    FOR c IN SELECT name FROM outbox_upgraded WHERE kind = 'check' LOOP
        EXECUTE pg_catalog.format('ALTER TABLE outbox DROP CONSTRAINT %I', c.name);
    END LOOP;
    IF (SELECT atttypid = 'varchar'::regtype AND atttypmod BETWEEN 0 AND 13 FROM pg_attribute
         WHERE attrelid = 'outbox'::regclass AND attname = 'status') THEN
        ALTER TABLE outbox ALTER COLUMN status TYPE VARCHAR(10);   -- wider: no row is rewritten
    END IF;
    -- The nine columns of ADR-004 (lines 111-121), its new names (75-79), and what the relay adds: what each is for is
    -- in core/002_outbox_events. Times are of created_at's type: without a zone they mean what the application's do.
    EXECUTE pg_catalog.format('ALTER TABLE outbox
        ADD COLUMN IF NOT EXISTS event_topic VARCHAR(150), ADD COLUMN IF NOT EXISTS occurred_at %1$s,
        ADD COLUMN IF NOT EXISTS aggregate_type VARCHAR(100), ADD COLUMN IF NOT EXISTS source_bc VARCHAR(50),
        ADD COLUMN IF NOT EXISTS destination_topics JSONB, ADD COLUMN IF NOT EXISTS metadata JSONB,
        ADD COLUMN IF NOT EXISTS next_retry_at %1$s, ADD COLUMN IF NOT EXISTS error_message TEXT,
        ADD COLUMN IF NOT EXISTS processed_at %1$s,
        ADD COLUMN IF NOT EXISTS schema_version INT, ADD COLUMN IF NOT EXISTS retry_count INT,
        ADD COLUMN IF NOT EXISTS position BIGINT, ADD COLUMN IF NOT EXISTS error_history JSONB,
        ADD COLUMN IF NOT EXISTS delivered_to JSONB, ADD COLUMN IF NOT EXISTS generation SMALLINT NOT NULL DEFAULT 0', clock);
    -- New rows are numbered above all old ones: a row takes 28 bytes at least, so the pages tell how many there are.
    EXECUTE pg_catalog.format('CREATE SEQUENCE outbox_position_seq START %s OWNED BY outbox.position',
                              pg_catalog.pg_relation_size('outbox') / 28 + 1);
    ALTER TABLE outbox ALTER COLUMN position SET DEFAULT nextval('outbox_position_seq');
    -- Operators and types are PostgreSQL's by name: whoever inserts calls nobody else's.
    CREATE FUNCTION outbox_fill() RETURNS trigger LANGUAGE plpgsql AS $fn$
    BEGIN
        NEW.type           := coalesce(NEW.type, NEW.event_topic);
        NEW.event_topic    := coalesce(NEW.event_topic, NEW.type);
        NEW.occurred_at    := coalesce(NEW.occurred_at, NEW.created_at);
        NEW.source_bc      := coalesce(NEW.source_bc, 'default');
        NEW.tenant_id      := coalesce(NEW.tenant_id, 'default');
        NEW.schema_ver     := coalesce(NEW.schema_version, NEW.schema_ver, 1);
        NEW.schema_version := NEW.schema_ver;
        NEW.retry_count    := coalesce(NEW.retry_count, NEW.retry_cnt, 0);
        NEW.retry_cnt      := NEW.retry_count;
        NEW.status         := coalesce(NEW.status, 'NEW');
        RETURN NEW;
    END
    $fn$;
    CREATE TRIGGER outbox_fill BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION outbox_fill();
    -- A publisher of old that is still running.
    CREATE FUNCTION outbox_settle() RETURNS trigger LANGUAGE plpgsql AS $fn$
    BEGIN
        IF NEW.status::text = 'ERR' THEN
            NEW.status := 'DEAD';
        ELSE
            NEW.processed_at := now();
        END IF;
        RETURN NEW;
    END
    $fn$;
    CREATE TRIGGER outbox_settle BEFORE INSERT OR UPDATE OF status ON outbox FOR EACH ROW
        WHEN (NEW.status::text = 'ERR' OR NEW.status::text = 'SENT' AND NEW.processed_at IS NULL) EXECUTE FUNCTION outbox_settle();
    -- A column's default draws from the sequence with the rights of the role that inserts.
    FOR c IN SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS writer
               FROM (SELECT relacl AS acl FROM pg_class WHERE oid = 'outbox'::regclass
                     UNION ALL SELECT attacl FROM pg_attribute WHERE attrelid = 'outbox'::regclass) t, aclexplode(t.acl) a
              WHERE a.privilege_type = 'INSERT' LOOP
        EXECUTE 'GRANT USAGE ON SEQUENCE outbox_position_seq TO ' || c.writer;
    END LOOP;
END
$do$;

-- The old rows, oldest first, 2000 a commit, so that position keeps their order. JIT and sorts off: position has no
-- statistics yet, and each batch would sort what is left.
DROP INDEX CONCURRENTLY IF EXISTS outbox_upgrade;
CREATE INDEX CONCURRENTLY outbox_upgrade ON outbox (created_at, id) WHERE position IS NULL;
SET enable_seqscan = off;
SET enable_sort = off;
SET jit = off;
SET lock_timeout = 0;
DO $do$
DECLARE
    last bigint := coalesce((SELECT max(position) FROM outbox, pg_sequence s
                              WHERE s.seqrelid = 'outbox_position_seq'::regclass AND position < s.seqstart), 0);
    begun outbox.created_at%TYPE := '-infinity';
    found_any boolean;
BEGIN
    LOOP
        WITH todo AS MATERIALIZED (
            SELECT id, created_at FROM outbox
             WHERE position IS NULL AND created_at >= begun ORDER BY created_at, id LIMIT 2000 FOR NO KEY UPDATE
        ), numbered AS (
            SELECT id, last + row_number() OVER (ORDER BY created_at, id) AS position FROM todo
        ), filled AS (
            -- coalesce: the seed's own UPDATE may have been run before.
            UPDATE outbox t
               SET event_topic    = coalesce(t.event_topic, t.type),
                   occurred_at    = coalesce(t.occurred_at, t.created_at),
                   source_bc      = coalesce(t.source_bc, 'default'),
                   tenant_id      = coalesce(t.tenant_id, 'default'),
                   schema_version = coalesce(t.schema_version, t.schema_ver, 1),
                   retry_count    = coalesce(t.retry_count, t.retry_cnt, 0),
                   status         = CASE t.status WHEN 'ERR' THEN 'DEAD' ELSE t.status END,
                   processed_at   = CASE t.status WHEN 'SENT' THEN coalesce(t.processed_at, t.created_at) ELSE t.processed_at END,
                   position       = n.position
              FROM numbered n
             WHERE t.id = n.id
            RETURNING n.position, t.created_at
        )
        SELECT coalesce(max(position), last), coalesce(max(created_at), begun), count(*) > 0
          INTO last, begun, found_any FROM filled;
        EXIT WHEN NOT found_any;
        COMMIT;
    END LOOP;
END
$do$;
RESET enable_seqscan;
RESET enable_sort;
DROP INDEX CONCURRENTLY IF EXISTS outbox_upgrade;

-- What the relay reads, and what holds from now on: checked while rows are read and written.
CREATE INDEX CONCURRENTLY IF NOT EXISTS outbox_undelivered ON outbox (position) WHERE status IN ('NEW', 'FAILED');
CREATE INDEX CONCURRENTLY IF NOT EXISTS outbox_waiting     ON outbox (next_retry_at) WHERE next_retry_at IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS outbox_tenants     ON outbox (tenant_id COLLATE "C", position)
    WHERE status IN ('NEW', 'FAILED');
SET lock_timeout = '2s';
DO $do$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'outbox'::regclass AND conname = 'outbox_adr004') THEN
        ALTER TABLE outbox ADD CONSTRAINT outbox_adr004 CHECK (
            status::text = ANY ('{NEW,SENT,FAILED,DEAD}'::text[]) AND event_topic IS NOT NULL AND occurred_at IS NOT NULL
            AND source_bc IS NOT NULL AND tenant_id IS NOT NULL AND schema_version IS NOT NULL AND retry_count IS NOT NULL
            AND position IS NOT NULL) NOT VALID;
    END IF;
END
$do$;
ALTER TABLE outbox VALIDATE CONSTRAINT outbox_adr004;
ALTER TABLE outbox ALTER COLUMN position SET NOT NULL;   -- by the constraint: no row is read
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000,
                        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
-- The rights of the roles of "outbox migrate roles", if these roles exist, as on outbox_events.
DO $do$
DECLARE
    c record;
BEGIN
    FOR c IN SELECT * FROM (VALUES
        ('outbox_relay',    'SELECT, DELETE, UPDATE (status, retry_count, next_retry_at, error_message, error_history, delivered_to, processed_at)', 'SELECT'),
        ('outbox_operator', 'SELECT, INSERT, UPDATE (payload, status, retry_count, next_retry_at, error_message, error_history, delivered_to, processed_at, generation)', 'USAGE'),
        ('outbox_reader',   'SELECT', 'SELECT')) v (role, rights, of_position) WHERE to_regrole(role) IS NOT NULL LOOP
        EXECUTE pg_catalog.format('GRANT %s ON outbox TO %I', c.rights, c.role);
        EXECUTE pg_catalog.format('GRANT %s ON SEQUENCE outbox_position_seq TO %I', c.of_position, c.role);
    END LOOP;
END
$do$;
ANALYZE outbox;
