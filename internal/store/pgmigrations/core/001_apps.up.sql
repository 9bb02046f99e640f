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
