-- The least each part needs, as nine group roles without login. Give them to your own logins:
--
--     GRANT outbox_producer TO shop;             -- writes events inside its own transactions
--     GRANT outbox_run_producer TO driver;       -- drives crawl runs and writes their events, of all tenants
--     GRANT outbox_relay    TO outbox_daemon;    -- delivers them
--     GRANT outbox_reader   TO reporting;        -- looks
--     GRANT outbox_operator TO support;          -- lists, replays, discards and purges dead letters
--     GRANT outbox_gateway  TO web;              -- serves the HTTP API, a tenant a transaction
--     GRANT outbox_worker   TO crawler;          -- crawls runs, of all tenants
--     GRANT outbox_consumer TO billing;          -- remembers what it has handled, and asks subscriptions
--     GRANT outbox_owner    TO deployer;         -- migrates and purges
--     ALTER ROLE deployer SET role = outbox_owner;   -- so that what it creates belongs to outbox_owner too
--
-- Run it after `outbox migrate up`, and again after each later one: it may run any number of times, and leaves the
-- nine roles with exactly what is written here on the tables that exist; what else they had there is revoked.
-- Run it as a superuser, or as the tables' owner with CREATEROLE. It is one transaction. It reads PostgreSQL's catalog
-- only: outbox_owner's members could attach code to anything else, and it would run with your rights.
--
-- Row-level security trusts the session: whoever may connect as a producer or reader names its tenant itself, with
-- SET LOCAL app.current_tenant. It keeps an application from mixing its tenants up; it is no wall between people
-- who are given the same login.

DO $do$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['outbox_owner', 'outbox_producer', 'outbox_run_producer', 'outbox_relay', 'outbox_reader', 'outbox_operator', 'outbox_gateway', 'outbox_worker', 'outbox_consumer'] LOOP
        BEGIN
            IF to_regrole(name) IS NULL THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;   -- roles belong to the server: another database was faster
        END;
    END LOOP;
    -- Giving a table away takes membership in the new owner. A superuser counts as a member.
    IF NOT pg_has_role('outbox_owner', 'MEMBER') THEN
        GRANT outbox_owner TO CURRENT_USER;
    END IF;
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO outbox_owner', current_schema());
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO outbox_producer, outbox_run_producer, outbox_relay, outbox_reader, outbox_operator, outbox_gateway, outbox_worker, outbox_consumer', current_schema());
END
$do$;

-- Everything belongs to outbox_owner, but for a purge function that an application had before (core/003).
DO $do$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['apps', 'outbox_events', 'job_dlq', 'outbox_audit', 'outbox_lanes', 'outbox_relays', 'outbox_readers', 'event_outbox', 'outbox_maintenance', 'outbox_archive',
                                'outbox_tokens', 'outbox_tickets', 'outbox_pauses', 'outbox_deliveries',
                                'outbox_inbox_0', 'outbox_inbox_1', 'outbox_inbox_turn', 'outbox_inbox_consumers', 'outbox_inbox_claims',
                                'crawl_runs', 'crawl_events', 'crawl_events_written', 'crawl_outbox', 'run_outbox',
                                'outbox_log', 'outbox_log_0', 'outbox_log_1', 'outbox_log_2', 'outbox_log_3', 'outbox_log_positions', 'outbox_log_era',
                                'outbox_subscriptions', 'outbox_subscription_events',
                                'outbox_adopted', 'outbox_migrations_core', 'outbox_migrations_events', 'outbox_migrations_crawl', 'outbox_migrations_log'] LOOP
        IF to_regclass(name) IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %s OWNER TO outbox_owner', to_regclass(name));
            EXECUTE format('REVOKE ALL ON %s FROM outbox_producer, outbox_run_producer, outbox_relay, outbox_reader, outbox_operator, outbox_gateway, outbox_worker, outbox_consumer', to_regclass(name));
        END IF;
    END LOOP;
    FOREACH name IN ARRAY ARRAY['crawl_events_id_seq', 'crawl_outbox_id_seq', 'outbox_log_part', 'outbox_log_position_seq', 'outbox_events_position_seq', 'event_outbox_position_seq',
                                'outbox_deliveries_position_seq', 'outbox_log_positions_id_seq', 'outbox_subscription_events_number_seq'] LOOP   -- they belong to whom their table belongs to
        IF to_regclass(name) IS NOT NULL THEN
            EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM outbox_producer, outbox_run_producer, outbox_relay, outbox_reader, outbox_operator, outbox_gateway, outbox_worker, outbox_consumer', to_regclass(name));
        END IF;
    END LOOP;
    FOREACH name IN ARRAY ARRAY['outbox_uuidv7()', 'crawl_events_append()', 'crawl_outbox_tenant()', 'outbox_events_refuse()', 'event_outbox_refuse()', 'outbox_once(uuid[], uuid, interval[])', 'outbox_inbox_sweep()'] LOOP
        IF to_regprocedure(name) IS NOT NULL THEN
            EXECUTE format('ALTER FUNCTION %s OWNER TO outbox_owner', to_regprocedure(name));
        END IF;
    END LOOP;
    FOR name IN SELECT p.oid::regprocedure::text FROM pg_proc p   -- some have types of the set log, which need not be there
                 WHERE to_regclass('outbox_subscriptions') IS NOT NULL AND p.pronamespace = to_regnamespace(quote_ident(current_schema()))
                   AND p.proname IN ('outbox_log_place', 'outbox_subscribe', 'outbox_rewind', 'outbox_subscription_event', 'outbox_subscription_bury',
                                     'outbox_subscription_fetch', 'outbox_log_rebase', 'outbox_next', 'outbox_ack', 'outbox_nack') LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO outbox_owner', name);
    END LOOP;
    -- Purges run with the caller's rights, so nobody gains anything by calling them. That PUBLIC may not says so.
    FOREACH name IN ARRAY ARRAY['purge_job_dlq', 'purge_event_outbox'] LOOP
        IF EXISTS (SELECT FROM pg_proc
                    WHERE oid = to_regprocedure(name || '(int)') AND strpos(prosrc, name || ': p_older_than_days must be 0 or more') > 0) THEN
            EXECUTE format('ALTER FUNCTION %s OWNER TO outbox_owner', to_regprocedure(name || '(int)'));
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', to_regprocedure(name || '(int)'));
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO outbox_relay', to_regprocedure(name || '(int)'));
            IF name = 'purge_job_dlq' THEN
                GRANT EXECUTE ON FUNCTION purge_job_dlq(int) TO outbox_operator;
            END IF;
        END IF;
    END LOOP;
    -- Whoever may read the view sees what he would see of its table, and not what its owner sees. Before PostgreSQL 15
    -- a view cannot: grant it there to nobody who may not see the events of all tenants.
    IF to_regclass('run_outbox') IS NOT NULL AND current_setting('server_version_num')::int >= 150000 THEN
        ALTER VIEW run_outbox SET (security_invoker = true);
    END IF;
    IF to_regtype('crawl_status') IS NOT NULL THEN
        ALTER TYPE crawl_status OWNER TO outbox_owner;
    END IF;
END
$do$;

DO $do$
DECLARE
    allowed RECORD;
BEGIN
    FOR allowed IN SELECT * FROM (VALUES
        -- A consumer remembers what it has handled, takes an id anew when its window is over, and ends a turn.
        ('outbox_consumer', 'outbox_inbox_0', 'SELECT, INSERT, UPDATE (payload, at), TRUNCATE'),
        ('outbox_consumer', 'outbox_inbox_1', 'SELECT, INSERT, UPDATE (payload, at), TRUNCATE'),
        ('outbox_consumer', 'outbox_inbox_turn', 'SELECT, UPDATE'),   -- of the whole table, which its lock needs
        ('outbox_consumer', 'outbox_inbox_consumers', 'SELECT, INSERT, UPDATE (keep, seen_at)'),
        ('outbox_consumer', 'outbox_inbox_claims', 'SELECT, INSERT, UPDATE, DELETE'),
        -- And asks a subscription for events of a log, and buries what it gives up. A gateway does so for others,
        -- a tenant a transaction, and makes subscriptions.
        ('outbox_consumer', 'outbox_log',           'SELECT'),
        ('outbox_consumer', 'outbox_subscriptions', 'SELECT, UPDATE (seen_at, position, snapshot, late_position, late_snapshot)'),
        ('outbox_consumer', 'outbox_subscription_events', 'SELECT, INSERT, UPDATE, DELETE'),
        ('outbox_consumer', 'job_dlq',              'INSERT'),
        ('outbox_consumer', 'apps',                 'SELECT (id, namespace), INSERT (name, namespace)'),
        ('outbox_gateway', 'outbox_log',            'SELECT'),
        ('outbox_gateway', 'outbox_subscriptions',  'SELECT, INSERT, DELETE, UPDATE (seen_at, position, snapshot, late_position, late_snapshot)'),
        ('outbox_gateway', 'outbox_subscription_events', 'SELECT, INSERT, UPDATE, DELETE'),
        ('outbox_gateway', 'job_dlq',               'INSERT'),
        ('outbox_gateway', 'apps',                  'SELECT (id, namespace), INSERT (name, namespace)'),
        ('outbox_operator', 'outbox_subscriptions', 'SELECT, INSERT, DELETE, UPDATE'),
        ('outbox_operator', 'outbox_subscription_events', 'SELECT, INSERT, DELETE'),   -- the replay of a dead letter; a rewind
        ('outbox_relay', 'outbox_subscriptions',    'SELECT'),   -- retention waits for them
        ('outbox_relay', 'outbox_subscription_events', 'SELECT'),
        ('outbox_reader', 'outbox_subscriptions',   'SELECT'),
        ('outbox_reader', 'outbox_subscription_events', 'SELECT'),
        -- A producer adds and never looks back. The columns of state, and what RETURNING gives it, are below.
        ('outbox_producer', 'outbox_events', 'INSERT (id, event_topic, occurred_at, schema_id, schema_version, aggregate_id, aggregate_type, tenant_id, source_bc, destination_topics, payload, metadata, created_at), SELECT (id, position)'),
        ('outbox_producer', 'event_outbox',  'INSERT (id, app_id, event_id, event_type, payload, event_key), SELECT (id, event_id, position)'),
        -- An application's id by its namespace, which event_outbox asks for. So a producer sees the namespaces of all
        -- tenants, and nothing else of them; which one it writes for it says itself anyway.
        ('outbox_producer', 'apps',          'SELECT (id, namespace)'),

        -- A log draws positions, and reads which part is filled.
        ('outbox_producer', 'outbox_log',    'INSERT (id, event_topic, occurred_at, schema_id, schema_version, aggregate_id, aggregate_type, tenant_id, source_bc, destination_topics, payload, metadata)'),
        ('outbox_producer', 'outbox_log_part', 'SELECT'),
        ('outbox_producer', 'outbox_log_position_seq', 'USAGE'),

        -- Whoever produces a run's events drives the run, in the same transaction. UPDATE on the run is also what its
        -- row lock needs, under which events are numbered (crawl/001_crawl_schema). A role of its own: one who writes
        -- orders has no business with goals and device configurations, of all tenants.
        ('outbox_run_producer', 'crawl_outbox',  'INSERT (id, crawl_id, event_type, payload, created_at, event_id, seq, tenant_id), SELECT (id, crawl_id, event_id, seq)'),
        ('outbox_run_producer', 'crawl_outbox_id_seq', 'USAGE'),
        ('outbox_run_producer', 'run_outbox',    'INSERT (run_id, event_type, payload, created_at)'),
        ('outbox_run_producer', 'crawl_events',  'INSERT (crawl_id, event_type, payload, created_at, event_id, seq, tenant_id), SELECT (id, crawl_id, seq, event_type, event_id)'),
        ('outbox_run_producer', 'crawl_events_written', 'SELECT'),
        ('outbox_run_producer', 'crawl_events_id_seq', 'USAGE'),
        ('outbox_run_producer', 'crawl_runs',    'INSERT, SELECT, UPDATE (status, started_at, completed_at, cancelled_at, error_message)'),

        -- A relay reads what is due and writes down what became of it: never the event itself. DELETE is for queues
        -- that drop what is delivered and for purges.
        ('outbox_relay', 'outbox_events', 'SELECT, DELETE, UPDATE (status, retry_count, next_retry_at, error_message, error_history, delivered_to, processed_at)'),
        ('outbox_relay', 'event_outbox',  'SELECT, DELETE, UPDATE (status, retry_count, next_retry_at, error_message, error_history, delivered_to, published_at)'),
        ('outbox_relay', 'crawl_outbox',  'SELECT, DELETE, UPDATE (retry_count, next_retry_at, error_message, error_history, delivered_to, published_at)'),
        ('outbox_relay', 'run_outbox',    'SELECT, UPDATE (published_at)'),
        -- A log is read, and emptied part by part; how far a relay has come it appends.
        ('outbox_relay', 'outbox_log',    'SELECT'),
        ('outbox_relay', 'outbox_log_0',  'SELECT, TRUNCATE'),
        ('outbox_relay', 'outbox_log_1',  'SELECT, TRUNCATE'),
        ('outbox_relay', 'outbox_log_2',  'SELECT, TRUNCATE'),
        ('outbox_relay', 'outbox_log_3',  'SELECT, TRUNCATE'),
        ('outbox_relay', 'outbox_log_part', 'USAGE'),
        ('outbox_relay', 'outbox_events_position_seq', 'SELECT'),   -- positions must rise, which a relay checks
        ('outbox_relay', 'event_outbox_position_seq', 'SELECT'),
        ('outbox_relay', 'crawl_outbox_id_seq', 'SELECT'),
        ('outbox_relay', 'outbox_deliveries_position_seq', 'SELECT'),
        ('outbox_relay', 'outbox_log_position_seq', 'SELECT'),
        ('outbox_relay', 'outbox_log_positions_id_seq', 'SELECT'),
        ('outbox_relay', 'outbox_subscription_events_number_seq', 'SELECT'),
        ('outbox_relay', 'outbox_log_positions', 'SELECT, INSERT, DELETE'),
        ('outbox_relay', 'outbox_log_era', 'SELECT, INSERT'),
        ('outbox_relay', 'outbox_migrations_log', 'SELECT'),
        -- What sinks owe is the relay's own: it copies it from the events.
        ('outbox_relay', 'outbox_deliveries', 'SELECT, INSERT, DELETE, UPDATE (status, attempts, next_retry_at, last_error, error_history, delivered_at)'),
        ('outbox_relay', 'job_dlq',       'SELECT, INSERT, DELETE'),
        ('outbox_relay', 'apps',          'SELECT, INSERT'),   -- the application of a tenant whose first letter dies
        ('outbox_relay', 'outbox_lanes',  'SELECT, INSERT, UPDATE, DELETE'),
        ('outbox_relay', 'outbox_relays', 'SELECT, INSERT, UPDATE, DELETE'),
        ('outbox_relay', 'outbox_readers', 'SELECT, INSERT'),   -- the first records its reader, and none changes it
        ('outbox_relay', 'outbox_inbox_consumers', 'SELECT'),
        ('outbox_relay', 'outbox_pauses', 'SELECT'),
        -- Retention. The archive is written and never read.
        ('outbox_relay', 'outbox_maintenance', 'SELECT, INSERT, UPDATE'),
        ('outbox_relay', 'outbox_archive', 'INSERT'),
        ('outbox_relay', 'outbox_audit', 'INSERT (actor, action, letters, filter, reason, detail)'),   -- outbox purge, which is run as this role
        ('outbox_relay', 'outbox_migrations_core',   'SELECT'),   -- it refuses to start on an old schema
        ('outbox_relay', 'outbox_migrations_events', 'SELECT'),
        ('outbox_relay', 'outbox_migrations_crawl',  'SELECT'),

        -- An operator puts dead rows back, with another payload if need be, and marks or deletes their letters. INSERT
        -- is for the letters of rows that were set dead by hand (dlq collect) and of events that are not to be
        -- delivered (events skip); the columns of errors, and DELETE from crawl_outbox, are for the latter.
        ('outbox_operator', 'job_dlq',       'SELECT, INSERT, DELETE, UPDATE (replayed_at, discarded_at, discard_reason)'),
        ('outbox_operator', 'outbox_audit',  'SELECT, INSERT (actor, action, letters, filter, reason, detail)'),
        ('outbox_operator', 'apps',          'SELECT, INSERT'),
        ('outbox_operator', 'outbox_archive', 'SELECT'),   -- outbox replay, and for it INSERT into outbox_events
        ('outbox_operator', 'outbox_lanes',  'SELECT'),        -- outbox lanes
        ('outbox_operator', 'outbox_relays', 'SELECT'),
        ('outbox_operator', 'outbox_readers', 'SELECT, INSERT, UPDATE'),   -- outbox lanes reader, which locks the table
        ('outbox_operator', 'outbox_inbox_consumers', 'SELECT'),
        ('outbox_operator', 'outbox_deliveries', 'SELECT, UPDATE (sink, payload, status, attempts, next_retry_at, last_error, error_history, delivered_at, generation)'),
        ('outbox_operator', 'outbox_pauses', 'SELECT, INSERT, UPDATE, DELETE'),
        ('outbox_operator', 'outbox_events', 'SELECT, INSERT, UPDATE (payload, status, retry_count, next_retry_at, error_message, error_history, delivered_to, processed_at, generation)'),
        ('outbox_operator', 'event_outbox',  'SELECT, UPDATE (payload, status, retry_count, next_retry_at, error_message, error_history, delivered_to, published_at, generation)'),
        ('outbox_operator', 'crawl_outbox',  'SELECT, INSERT, DELETE, UPDATE (next_retry_at)'),   -- dead rows leave it
        ('outbox_operator', 'outbox_log',    'SELECT, INSERT (id, event_topic, occurred_at, schema_id, schema_version, aggregate_id, aggregate_type, tenant_id, source_bc, destination_topics, payload, metadata, generation)'),   -- a replay is a new row
        ('outbox_operator', 'outbox_log_part', 'SELECT'),
        ('outbox_operator', 'outbox_log_positions', 'SELECT'),   -- how far each lane of the log has come
        ('outbox_operator', 'outbox_maintenance', 'SELECT'),     -- conditions: when the last retention ran
        ('outbox_operator', 'outbox_migrations_core',   'SELECT'),   -- conditions: which version the tables have
        ('outbox_operator', 'outbox_migrations_events', 'SELECT'),
        ('outbox_operator', 'outbox_migrations_crawl',  'SELECT'),
        ('outbox_operator', 'outbox_migrations_log',    'SELECT'),
        ('outbox_operator', 'outbox_log_position_seq', 'USAGE'),
        ('outbox_operator', 'crawl_runs',    'SELECT (id, tenant_id)'),   -- a row put back by a letter that has no tenant gets its run's (crawl/002_crawl_outbox)

        -- A gateway looks tokens up and makes none, and makes tickets of a minute at most: created_at is not its to
        -- choose. UPDATE is for SKIP LOCKED, with which it sweeps old tickets.
        ('outbox_gateway', 'outbox_tokens',  'SELECT'),
        ('outbox_gateway', 'outbox_tickets', 'SELECT, INSERT (sha256, token_id, scopes, expires_at), DELETE, UPDATE (sha256)'),

        -- Whose runs: that is the policies' business, below. Neither reads the outbox that it writes to.
        ('outbox_gateway', 'crawl_runs',     'SELECT, INSERT, UPDATE (status, started_at, completed_at, cancelled_at, error_message, lease_owner, lease_expires_at)'),
        ('outbox_gateway', 'crawl_events',   'SELECT, INSERT (crawl_id, event_type, payload, event_id)'),
        ('outbox_gateway', 'crawl_outbox',   'INSERT (crawl_id, event_type, payload, created_at, event_id, seq, tenant_id)'),
        ('outbox_gateway', 'crawl_events_id_seq', 'USAGE'),
        ('outbox_gateway', 'crawl_outbox_id_seq', 'USAGE'),
        ('outbox_worker', 'crawl_runs',      'SELECT, UPDATE (status, started_at, completed_at, cancelled_at, error_message, lease_owner, lease_expires_at, lease_epoch, next_node, node_state, steps_done, node_attempts)'),
        ('outbox_worker', 'crawl_events',    'SELECT, INSERT (crawl_id, event_type, payload, event_id)'),
        ('outbox_worker', 'crawl_outbox',    'INSERT (crawl_id, event_type, payload, created_at, event_id, seq, tenant_id)'),
        ('outbox_worker', 'crawl_events_id_seq', 'USAGE'),
        ('outbox_worker', 'crawl_outbox_id_seq', 'USAGE'),

        -- Not outbox_deliveries: it has events of all tenants, also of tables where row-level security holds a reader
        -- to one.
        ('outbox_reader', 'outbox_audit',  'SELECT'),
        ('outbox_reader', 'apps',          'SELECT'),
        ('outbox_reader', 'outbox_events', 'SELECT'),
        ('outbox_reader', 'job_dlq',       'SELECT'),
        ('outbox_reader', 'outbox_lanes',  'SELECT'),
        ('outbox_reader', 'outbox_relays', 'SELECT'),
        ('outbox_reader', 'outbox_readers', 'SELECT'),
        ('outbox_reader', 'outbox_inbox_consumers', 'SELECT'),
        ('outbox_reader', 'outbox_pauses', 'SELECT'),
        ('outbox_reader', 'outbox_maintenance', 'SELECT'),
        ('outbox_reader', 'event_outbox',  'SELECT'),
        ('outbox_reader', 'crawl_runs',    'SELECT'),
        ('outbox_reader', 'crawl_events',  'SELECT'),
        ('outbox_reader', 'crawl_outbox',  'SELECT'),
        ('outbox_reader', 'run_outbox',    'SELECT'),
        ('outbox_reader', 'outbox_log',    'SELECT'),
        ('outbox_reader', 'outbox_log_positions', 'SELECT'),
        ('outbox_reader', 'outbox_migrations_log', 'SELECT'),
        ('outbox_reader', 'outbox_migrations_core',   'SELECT'),
        ('outbox_reader', 'outbox_migrations_events', 'SELECT'),
        ('outbox_reader', 'outbox_migrations_crawl',  'SELECT')
    ) AS line (role, object, privileges) WHERE to_regclass(object) IS NOT NULL
    LOOP
        EXECUTE format('GRANT %s ON %s %s TO %I', allowed.privileges,
                       CASE WHEN allowed.privileges = 'USAGE' THEN 'SEQUENCE' ELSE 'TABLE' END,
                       to_regclass(allowed.object), allowed.role);
    END LOOP;
END
$do$;

-- A relay delivers for every tenant, and an operator looks after all of them. A policy for their role, not BYPASSRLS:
-- that would open every other table of the database to them too.
DO $do$
DECLARE
    name TEXT;
    part TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['job_dlq', 'event_outbox', 'outbox_events'] LOOP
        FOREACH part IN ARRAY ARRAY['relay', 'operator'] LOOP
            IF to_regclass(name) IS NOT NULL THEN
                EXECUTE format('DROP POLICY IF EXISTS %I ON %s', name || '_' || part, to_regclass(name));
                EXECUTE format('CREATE POLICY %I ON %s TO %I USING (true) WITH CHECK (true)', name || '_' || part, to_regclass(name), 'outbox_' || part);
            END IF;
        END LOOP;
    END LOOP;
END
$do$;

-- Who consumes writes letters, of all tenants, and reads none.
DO $do$
DECLARE
    part TEXT;
BEGIN
    FOREACH part IN ARRAY ARRAY['consumer', 'gateway'] LOOP
        CONTINUE WHEN to_regclass('job_dlq') IS NULL;
        EXECUTE format('DROP POLICY IF EXISTS %I ON job_dlq', 'job_dlq_' || part);
        EXECUTE format('CREATE POLICY %I ON job_dlq FOR INSERT TO %I WITH CHECK (true)', 'job_dlq_' || part, 'outbox_' || part);
    END LOOP;
END
$do$;

-- A gateway sees a subscription, and what it has fetched, as the tenant that it names; the other roles see all of them.
DO $do$
DECLARE
    name TEXT;
    part TEXT;
    own  TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['outbox_subscriptions', 'outbox_subscription_events'] LOOP
        CONTINUE WHEN to_regclass(name) IS NULL;
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', to_regclass(name));
        FOREACH part IN ARRAY ARRAY['consumer', 'relay', 'reader', 'operator', 'gateway'] LOOP
            own := 'true';
            IF part = 'gateway' AND name = 'outbox_subscriptions' THEN
                own := $$tenant = nullif(current_setting('app.current_namespace', true), '')$$;
            ELSIF part = 'gateway' THEN   -- once a statement, not a row
                own := format('subscription IN (SELECT s.name FROM %s s)', to_regclass('outbox_subscriptions'));
            END IF;
            EXECUTE format('DROP POLICY IF EXISTS %I ON %s', name || '_' || part, to_regclass(name));
            EXECUTE format('CREATE POLICY %I ON %s TO %I USING (%s) WITH CHECK (%s)', name || '_' || part, to_regclass(name), 'outbox_' || part, own, own);
        END LOOP;
    END LOOP;
END
$do$;

-- A log shows a login that is in none of these roles the events of the tenant that it names with SET LOCAL
-- app.current_namespace. It may insert events of any tenant if it has the right to INSERT. The roles below see the
-- events of all tenants: a subscription has to read past the events of others, and selects its tenant's itself. Not
-- forced: the owner sees everything.
DO $do$
DECLARE
    name TEXT;
    part TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['outbox_log', 'outbox_log_0', 'outbox_log_1', 'outbox_log_2', 'outbox_log_3'] LOOP
        CONTINUE WHEN to_regclass(name) IS NULL;
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', to_regclass(name));
        EXECUTE format('DROP POLICY IF EXISTS %I ON %s', name || '_tenant', to_regclass(name));
        EXECUTE format('CREATE POLICY %I ON %s FOR SELECT USING (tenant_id = nullif(current_setting(%L, true), %L))', name || '_tenant', to_regclass(name), 'app.current_namespace', '');
        EXECUTE format('DROP POLICY IF EXISTS %I ON %s', name || '_insert', to_regclass(name));
        EXECUTE format('CREATE POLICY %I ON %s FOR INSERT WITH CHECK (true)', name || '_insert', to_regclass(name));
        FOREACH part IN ARRAY ARRAY['relay', 'operator', 'reader', 'consumer', 'gateway'] LOOP
            EXECUTE format('DROP POLICY IF EXISTS %I ON %s', name || '_' || part, to_regclass(name));
            EXECUTE format('CREATE POLICY %I ON %s FOR SELECT TO %I USING (true)', name || '_' || part, to_regclass(name), 'outbox_' || part);
        END LOOP;
    END LOOP;
END
$do$;

-- A gateway acts for one tenant a transaction, which it names with SET LOCAL app.current_namespace; all others see
-- every run, as before there were tenants. Not forced: plain SQL of the tables' owner goes on as it is. A login of your
-- own that is in none of these roles sees no run from here on: grant it one of them. One that is in several has what
-- any of them gives: in outbox_gateway and outbox_worker it is not held to a tenant, so give a gateway a login of its
-- own. The outbox's check looks the run up, or a tenant could send events in the name of another's run; crawl_events
-- has a trigger that does.
DO $do$
DECLARE
    name TEXT;
    part TEXT;
    own  TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['crawl_runs', 'crawl_events', 'crawl_outbox'] LOOP
        CONTINUE WHEN to_regclass(name) IS NULL;
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', to_regclass(name));
        EXECUTE format('DROP POLICY IF EXISTS %I ON %s', name || '_producer', to_regclass(name));   -- of an earlier version
        FOREACH part IN ARRAY ARRAY['run_producer', 'relay', 'reader', 'operator', 'worker', 'gateway'] LOOP
            own := 'true';
            IF part = 'gateway' THEN
                own := $$tenant_id = nullif(current_setting('app.current_namespace', true), '')$$;
                IF name = 'crawl_outbox' THEN
                    own := format('%s AND EXISTS (SELECT FROM %s r WHERE r.id = crawl_id)', own, to_regclass('crawl_runs'));
                END IF;
            END IF;
            EXECUTE format('DROP POLICY IF EXISTS %I ON %s', name || '_' || part, to_regclass(name));
            EXECUTE format('CREATE POLICY %I ON %s TO %I USING (%s) WITH CHECK (%s)', name || '_' || part, to_regclass(name), 'outbox_' || part, own, own);
        END LOOP;
    END LOOP;
END
$do$;

-- A producer may name the columns of state, as the seeds' INSERTs do, with their initial values only. A restrictive
-- policy for each column refuses other values. PostgreSQL's error names the policy, and so the column. Other roles pay
-- nothing for it, as they would for a trigger.
-- RETURNING * needs SELECT on every column. The last policy shows a producer the row that it inserts, whose position
-- its session has just drawn, and no other row. (xmin cannot be used: the check runs before the row has one.)
-- A login with INSERT or SELECT on the whole table, by another role or a grant of its own, is not restricted.
-- Where row-level security was off, the policy NAME_all leaves all other roles as they were. Drop it if you add
-- policies of your own to that table.
DO $do$
DECLARE
    found    RECORD;
    state    RECORD;
    sequence TEXT;
BEGIN
    FOR found IN SELECT v.*, c.oid::regclass AS rel, c.relrowsecurity AS secured
                   FROM (VALUES ('outbox_events', 'outbox_producer',     'position', 'NEW'),
                                ('event_outbox',  'outbox_producer',     'position', 'pending'),
                                ('crawl_outbox',  'outbox_run_producer', 'id',       NULL)) AS v (name, producer, position, status)
                   JOIN pg_class c ON c.oid = to_regclass(v.name) LOOP
        sequence := pg_get_serial_sequence(found.rel::text, found.position);
        IF NOT found.secured THEN
            EXECUTE format('DROP POLICY IF EXISTS %I ON %s', found.name || '_all', found.rel);
            EXECUTE format('CREATE POLICY %I ON %s USING (true) WITH CHECK (true)', found.name || '_all', found.rel);
            EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', found.rel);
        END IF;
        FOR state IN SELECT a.attname AS name, CASE WHEN a.attname = 'status' THEN format('= %L', found.status)
                                                    WHEN a.attname IN ('retry_count', 'generation') THEN '= 0'
                                                    WHEN a.attname = 'id' THEN format('= pg_catalog.currval(%L::regclass)', sequence)
                                                    ELSE 'IS NULL' END AS initial
                       FROM pg_attribute a
                      WHERE a.attrelid = found.rel AND NOT a.attisdropped
                        AND (a.attname IN ('status', 'retry_count', 'generation', 'next_retry_at', 'error_message', 'error_history',
                                           'delivered_to', 'published_at', 'processed_at')
                             OR a.attname = 'id' AND found.position = 'id' AND sequence IS NOT NULL) LOOP
            EXECUTE format('DROP POLICY IF EXISTS %I ON %s', state.name || ' must have its initial value', found.rel);
            EXECUTE format('CREATE POLICY %I ON %s AS RESTRICTIVE FOR INSERT TO %I WITH CHECK (%I %s OR pg_catalog.has_table_privilege(%L::regclass, %L))',
                           state.name || ' must have its initial value', found.rel, found.producer, state.name, state.initial, found.rel, 'INSERT');
            EXECUTE format('GRANT INSERT (%I) ON %s TO %I', state.name, found.rel, found.producer);
        END LOOP;
        EXECUTE format('DROP POLICY IF EXISTS %I ON %s', 'producers see the row that they insert', found.rel);
        CONTINUE WHEN sequence IS NULL;   -- positions that something else draws
        EXECUTE format('CREATE POLICY %I ON %s AS RESTRICTIVE FOR SELECT TO %I USING ((SELECT pg_catalog.has_table_privilege(%L::regclass, %L)) OR %I = pg_catalog.currval(%L::regclass))',
                       'producers see the row that they insert', found.rel, found.producer, found.rel, 'SELECT', found.position, sequence);
        EXECUTE format('GRANT SELECT ON SEQUENCE %s TO %I', sequence, found.producer);
        EXECUTE format('GRANT SELECT (%s) ON %s TO %I', (SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
                                                         WHERE attrelid = found.rel AND attnum > 0 AND NOT attisdropped),
                       found.rel, found.producer);
    END LOOP;
END
$do$;
