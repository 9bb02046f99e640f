-- Outbox, core/003_job_dlq.

-- Source: plan 05-01 (seed 002, lines 61 and 81-83): one dead-letter table for jobs and events, told apart by
-- source, with the error reasons scoped by it, and a purge function.
-- Additive: destination, outbox_table, event_key, generation, position and origin (what a replay needs to put the event
-- back where it came from), discarded_at and discard_reason (an operator's decision not to replay), tenant.

-- With row-level security, forced on the owner too. Once a transaction has used SET LOCAL the setting reads '' in the
-- next one on that connection, not NULL, and ''::uuid is an error: hence nullif. No tenant: no rows.
-- A table that was there before has an application, which all this would shut out: so it belongs to the making.
DO $do$
BEGIN
    IF to_regclass(format('%I.job_dlq', current_schema())) IS NULL THEN
        CREATE TABLE job_dlq (
            id              UUID PRIMARY KEY DEFAULT outbox_uuidv7(),
            source          TEXT    NOT NULL DEFAULT 'job' CONSTRAINT job_dlq_source_check CHECK (source IN ('job', 'event')),
            original_job_id UUID    NOT NULL,   -- the job's or event's id; no foreign key, the letter outlives its origin
            app_id          UUID    NOT NULL REFERENCES apps (id) ON DELETE RESTRICT,
            user_id         UUID,
            request_id      UUID,
            type            TEXT    NOT NULL,
            payload         JSONB   NOT NULL,
            error_reason    TEXT    NOT NULL,
            attempts        INTEGER NOT NULL CONSTRAINT job_dlq_attempts_check CHECK (attempts > 0),
            error_history   JSONB   NOT NULL CONSTRAINT job_dlq_error_history_check CHECK (jsonb_typeof(error_history) = 'array'),
            replayed_at     TIMESTAMPTZ,

            -- ---- additive ----
            destination     TEXT,
            outbox_table    TEXT,
            event_key       TEXT,
            discarded_at    TIMESTAMPTZ,
            discard_reason  TEXT,
            generation      SMALLINT NOT NULL DEFAULT 0,
            position        BIGINT,   -- within the letter's key, whose letters are replayed in the order of its events
            -- The dead row without its payload, where it left its table (crawl_outbox): a replay inserts exactly this row
            -- again, at its old position. NULL where the row is still there, and for jobs.
            origin          JSONB,
            -- The tenant, exactly; NULL is the application's namespace. Namespaces that differ in case only are one
            -- application (apps_namespace_key), and two tenants.
            tenant          TEXT,

            -- HandlerMissing is shared; every other reason belongs to one source.
            CONSTRAINT job_dlq_error_reason_check CHECK (
                (source = 'job' AND error_reason IN
                    ('MaxRetries', 'Validation', 'HandlerMissing', 'RunnerUnavailable', 'Timeout', 'Panic'))
                OR (source = 'event' AND error_reason IN
                    ('DeliveryFailed', 'DeserializationFailed', 'DuplicateEvent', 'HandlerMissing', 'HandlerTimeout')))
        );

        ALTER TABLE job_dlq ENABLE ROW LEVEL SECURITY;
        ALTER TABLE job_dlq FORCE ROW LEVEL SECURITY;
        CREATE POLICY job_dlq_tenant ON job_dlq
            USING      (app_id = nullif(current_setting('app.current_tenant', true), '')::uuid)
            WITH CHECK (app_id = nullif(current_setting('app.current_tenant', true), '')::uuid);
    END IF;
END
$do$;

CREATE INDEX IF NOT EXISTS idx_job_dlq_id_brin         ON job_dlq USING brin (id);
CREATE INDEX IF NOT EXISTS idx_job_dlq_pending_source  ON job_dlq (source, error_reason) WHERE replayed_at IS NULL;
CREATE INDEX IF NOT EXISTS idx_job_dlq_pending_type    ON job_dlq (type, error_reason)   WHERE replayed_at IS NULL;
CREATE INDEX IF NOT EXISTS idx_job_dlq_pending_app     ON job_dlq (app_id, id DESC)      WHERE replayed_at IS NULL;
CREATE INDEX IF NOT EXISTS idx_job_dlq_original_job_id ON job_dlq (original_job_id);
CREATE INDEX IF NOT EXISTS idx_job_dlq_request_id      ON job_dlq (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_job_dlq_error_history   ON job_dlq USING gin (error_history);
CREATE INDEX IF NOT EXISTS idx_job_dlq_app_id          ON job_dlq (app_id);
CREATE INDEX IF NOT EXISTS idx_job_dlq_user_id         ON job_dlq (user_id) WHERE user_id IS NOT NULL;

-- A replay's pages: by table, in the order of positions, the letters of one event together. Jobs
-- have no position. Letters wait to be replayed or discarded; afterwards they cost nothing here.
CREATE INDEX IF NOT EXISTS job_dlq_replay ON job_dlq (coalesce(outbox_table, ''), coalesce(position, 0), original_job_id)
    WHERE replayed_at IS NULL AND discarded_at IS NULL;
-- A purge, in batches: without these each batch would read the whole table.
CREATE INDEX IF NOT EXISTS job_dlq_replayed  ON job_dlq (replayed_at)  WHERE replayed_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS job_dlq_discarded ON job_dlq (discarded_at) WHERE discarded_at IS NOT NULL;

-- Deletes letters replayed more than p_older_than_days ago, of every application; returns how many.
-- Letters never replayed, discarded ones included, are kept.
--
-- Under FORCE the owner sees no row without a tenant, so a bare DELETE would do nothing and say nothing. The
-- function therefore takes each application's place in turn, which needs no bypass policy: any role that may
-- read apps and delete here gets the same result. The caller's tenant is put back by hand; on an error the rollback
-- does it. (A SET clause of the function would, but PostgreSQL 15 lets only superusers write one for app.*.)
--
-- A function of that name that was there before is its application's, and stays. Outbox calls neither, and makes none
-- beside one with other parameters, since calls would be ambiguous. (Not indented: its text is as databases have it.)
DO $do$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace(quote_ident(current_schema())) AND proname = 'purge_job_dlq') THEN
CREATE FUNCTION purge_job_dlq(p_older_than_days INT DEFAULT 30) RETURNS INT
    LANGUAGE plpgsql AS $fn$
DECLARE
    callers TEXT := coalesce(current_setting('app.current_tenant', true), '');
    app     UUID;
    deleted INT;
    total   INT := 0;
BEGIN
    IF p_older_than_days IS NULL OR p_older_than_days < 0 THEN
        RAISE EXCEPTION 'purge_job_dlq: p_older_than_days must be 0 or more, got %', coalesce(p_older_than_days::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR app IN SELECT id FROM apps LOOP
        PERFORM set_config('app.current_tenant', app::text, true);
        DELETE FROM job_dlq
         WHERE app_id = app
           AND replayed_at < now() - make_interval(days => p_older_than_days);
        GET DIAGNOSTICS deleted = ROW_COUNT;
        total := total + deleted;
    END LOOP;
    PERFORM set_config('app.current_tenant', callers, true);
    RETURN total;
END
$fn$;
    END IF;
END
$do$;
