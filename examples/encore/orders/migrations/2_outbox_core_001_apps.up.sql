-- The tables of Outbox for Encore, written by `outbox migrate export`: a file a step, in the order of the numbers.
-- The next release's steps come into this folder by the same command. It finds the old ones by their names, so keep
-- the names; it changes no file. Your own migrations may stand between them. More: docs/guide/adopting.md.
--
-- The files run what `outbox migrate up` runs. What that command does around them is left to you:
--   - A table of the same name that is there already is refused, where the command adopts it. Let it do that once.
--   - A lock is waited for without a limit, and writers wait behind that: set lock_timeout, or choose a quiet time.
--   - Roles and row-level security of crawl's tables are `outbox migrate roles`, again after each new step.
--   - On a database where `outbox migrate up` has applied them, mark them as applied instead of running them.
-- A file is one transaction, may run twice, needs no setting, and makes its tables in the first schema of search_path.
-- No index is built CONCURRENTLY. `outbox migrate status` sees what was applied; a relay needs nothing else.
-- Encore has no way down, and wants numbers from 1 without a gap.

-- Outbox, core/001_apps.

-- migrate: nobody gets the rights of who migrates. Refuses where a role with less than the caller's rights has made, in
-- a schema of the search path, a function or an operator that is called like one of PostgreSQL's. It may fit a call
-- better, and would be called in its place. A superuser keeps others from making one until the transaction ends.
DO $do$
DECLARE
    path     pg_catalog.text   := pg_catalog.current_setting('search_path');
    schemas  pg_catalog.name[] := pg_catalog.current_schemas(false);
    inorder  pg_catalog.name[] := pg_catalog.current_schemas(true);
    near     pg_catalog.oid[];
    above    pg_catalog.bool;
    stranger pg_catalog.record;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    IF array_position(inorder, 'pg_catalog') > 1 + (inorder[1] LIKE 'pg\_temp%')::int THEN
        RAISE EXCEPTION 'the search path names other schemas before pg_catalog, whose tables and functions would take the place of PostgreSQL''s'
            USING ERRCODE = 'insufficient_privilege', HINT = 'Remove pg_catalog from the search path.';
    END IF;
    SELECT rolsuper INTO above FROM pg_roles WHERE rolname = current_user;
    near := ARRAY(SELECT oid FROM pg_namespace WHERE nspname = ANY (schemas) AND nspname <> 'pg_catalog');
    IF above THEN
        LOCK TABLE pg_proc, pg_operator IN SHARE ROW EXCLUSIVE MODE;
    END IF;
    SELECT s.kind, s.what, r.rolname AS owner INTO stranger
      FROM (SELECT 'function' AS kind, p.oid::regprocedure::text AS what, p.proowner AS owner FROM pg_proc p
             WHERE p.pronamespace = ANY (near)
               AND EXISTS (SELECT FROM pg_proc b WHERE b.proname = p.proname AND b.pronamespace = 'pg_catalog'::regnamespace)
            UNION ALL
            SELECT 'operator', o.oid::regoperator::text, o.oprowner FROM pg_operator o WHERE o.oprnamespace = ANY (near)) s
      JOIN pg_roles r ON r.oid = s.owner
     WHERE NOT r.rolsuper AND (above OR NOT pg_has_role(current_user, r.oid, 'MEMBER'))
     ORDER BY 1, 2 LIMIT 1;
    PERFORM set_config('search_path', path, true);
    IF stranger IS NOT NULL THEN
        RAISE EXCEPTION 'the % % of role % is called like one of PostgreSQL''s, and might be called with the rights of %',
            stranger.kind, stranger.what, stranger.owner, current_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = pg_catalog.format('Drop it, or move it to a schema that is not in the search path (ALTER %s %s SET SCHEMA ...); or, if you trust what it does, ALTER %s %s OWNER TO %I.',
                      pg_catalog.upper(stranger.kind), stranger.what, pg_catalog.upper(stranger.kind), stranger.what, current_user);
    END IF;
END
$do$;

DO $do$
BEGIN
    -- A table of this name that was there before would be taken for Outbox's and fail half way.
    IF to_regclass(format('%I.apps', current_schema())) IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute
         WHERE attrelid = to_regclass(format('%I.apps_namespace_key', current_schema())) AND NOT attisdropped) THEN
        RAISE EXCEPTION 'table apps is there already, and was not made by Outbox'
            USING ERRCODE = 'duplicate_table',
                  DETAIL = 'It has no index apps_namespace_key.',
                  HINT = 'Adopt it: `outbox migrate up`, then these files again (docs/guide/adopting.md, "With your own migration tool").';
    END IF;
END
$do$;

DO $do$
BEGIN
    -- A table of this name that was there before would be taken for Outbox's and fail half way.
    IF to_regclass(format('%I.outbox_events', current_schema())) IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute
         WHERE attrelid = to_regclass(format('%I.outbox_events', current_schema())) AND NOT attisdropped
           AND attname = 'position') THEN
        RAISE EXCEPTION 'table outbox_events is there already, and was not made by Outbox'
            USING ERRCODE = 'duplicate_table',
                  DETAIL = 'It has no column position.',
                  HINT = 'Adopt it: `outbox migrate up`, then these files again (docs/guide/adopting.md, "With your own migration tool").';
    END IF;
END
$do$;

DO $do$
BEGIN
    -- A table of this name that was there before would be taken for Outbox's and fail half way.
    IF to_regclass(format('%I.job_dlq', current_schema())) IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute
         WHERE attrelid = to_regclass(format('%I.job_dlq', current_schema())) AND NOT attisdropped
           AND attname = 'generation') THEN
        RAISE EXCEPTION 'table job_dlq is there already, and was not made by Outbox'
            USING ERRCODE = 'duplicate_table',
                  DETAIL = 'It has no column generation.',
                  HINT = 'Adopt it: `outbox migrate up`, then these files again (docs/guide/adopting.md, "With your own migration tool").';
    END IF;
END
$do$;

-- Source: the event bus of plan 05-01 (seed 002). Its tables point at the application they belong to.
-- Additive: created_at; the row 'default', so that ADR-004's default tenant_id (seed 004, line 25)
-- has an application and its dead letters have somewhere to go; the function outbox_uuidv7().
--
-- Every file here may run twice: golang-migrate marks a version before it runs the file, and a
-- process that dies in between leaves it unknown whether the file ran. The file itself is one simple
-- query, hence one transaction: it ran wholly or not at all.

-- A UUIDv7 (RFC 9562) for rows written in plain SQL; the library draws its ids itself. The twelve
-- bits after the milliseconds hold the fraction of the millisecond (RFC 9562, 6.2, method 3), as
-- PostgreSQL 18's own uuidv7() does, which is used where it exists. One expression, so that it is
-- inlined into the INSERT. microseconds * 512 / 125 = milliseconds * 4096.
DO $do$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        CREATE OR REPLACE FUNCTION outbox_uuidv7() RETURNS uuid
            LANGUAGE sql VOLATILE PARALLEL SAFE AS 'SELECT uuidv7()';
    ELSE
        CREATE OR REPLACE FUNCTION outbox_uuidv7() RETURNS uuid
            LANGUAGE sql VOLATILE PARALLEL SAFE AS $fn$
            SELECT (overlay(lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 512 / 125), 15, '0')
                            PLACING '7' FROM 13 FOR 0)
                    || substr(gen_random_uuid()::text, 20))::uuid
        $fn$;
    END IF;
END
$do$;

CREATE TABLE IF NOT EXISTS apps (
    id         UUID PRIMARY KEY DEFAULT outbox_uuidv7(),
    name       TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    settings   JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- 'Acme' and 'acme' are one tenant.
CREATE UNIQUE INDEX IF NOT EXISTS apps_namespace_key ON apps (lower(namespace));

INSERT INTO apps (name, namespace) VALUES ('Default', 'default') ON CONFLICT DO NOTHING;
