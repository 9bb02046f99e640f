-- In no seed: a log table, whose rows are only inserted (docs/adr/0035). Needs the set core (outbox_uuidv7, outbox_lanes,
-- outbox_deliveries, job_dlq). The columns are those of outbox_events without the ones of state.

-- Which part the writers fill: this number modulo the number of parts. The relays raise it once the next part is empty.
CREATE SEQUENCE IF NOT EXISTS outbox_log_part;
CREATE SEQUENCE IF NOT EXISTS outbox_log_position_seq;

CREATE TABLE IF NOT EXISTS outbox_log (
    -- The transaction has its number before it draws a position: CASE computes one after the other.
    xid                XID8         NOT NULL DEFAULT pg_current_xact_id(),
    position           BIGINT       NOT NULL DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('outbox_log_position_seq') END,
    occurred_at        TIMESTAMPTZ  NOT NULL,
    created_at         TIMESTAMPTZ  NOT NULL DEFAULT now(),
    id                 UUID         NOT NULL DEFAULT outbox_uuidv7(),   -- not unique: an index of random ids would cost the writers most
    schema_version     INT          NOT NULL DEFAULT 1,
    part               SMALLINT     NOT NULL DEFAULT coalesce(pg_sequence_last_value('outbox_log_part'), 0) % 4,
    generation         SMALLINT     NOT NULL DEFAULT 0,   -- raised by a replay, which is another row

    event_topic        VARCHAR(150) NOT NULL,
    schema_id          VARCHAR(128),
    aggregate_id       VARCHAR(128),
    aggregate_type     VARCHAR(100),
    tenant_id          VARCHAR(64)  NOT NULL DEFAULT 'default',
    source_bc          VARCHAR(50)  NOT NULL,
    destination_topics JSONB,
    payload            JSONB        NOT NULL,
    metadata           JSONB
) PARTITION BY LIST (part);
ALTER SEQUENCE outbox_log_position_seq OWNED BY outbox_log.position;
ALTER SEQUENCE outbox_log_part OWNED BY outbox_log.part;

-- A vacuum for inserts has nothing to do: a part is truncated before its rows are old enough to be frozen.
CREATE TABLE IF NOT EXISTS outbox_log_0 PARTITION OF outbox_log FOR VALUES IN (0) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE IF NOT EXISTS outbox_log_1 PARTITION OF outbox_log FOR VALUES IN (1) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE IF NOT EXISTS outbox_log_2 PARTITION OF outbox_log FOR VALUES IN (2) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE IF NOT EXISTS outbox_log_3 PARTITION OF outbox_log FOR VALUES IN (3) WITH (autovacuum_vacuum_insert_threshold = -1);

-- The claim: rows behind a position; and the rows of some transactions in front of it.
CREATE INDEX IF NOT EXISTS outbox_log_behind ON outbox_log (position);
-- Not position as it is: the planner would take the index above for it, and read the whole log.
CREATE INDEX IF NOT EXISTS outbox_log_late   ON outbox_log (xid, (position + 0));

-- How far relays have come, lane by lane. Rows are appended, and deleted once no lane needs them. Each says of its lanes, which are the bits of a number:
-- every row of the log up to the position that the snapshot sees has been delivered or copied into outbox_deliveries, or is a dead letter; and up to
-- late_position, every row that late_snapshot sees.
CREATE TABLE IF NOT EXISTS outbox_log_positions (
    table_name    TEXT        NOT NULL,   -- as in outbox_lanes
    position      BIGINT      NOT NULL,
    id            BIGINT      GENERATED ALWAYS AS IDENTITY,
    lanes         BIGINT      NOT NULL,
    snapshot      PG_SNAPSHOT NOT NULL,
    late_position BIGINT,
    late_snapshot PG_SNAPSHOT,
    CHECK ((late_position IS NULL) = (late_snapshot IS NULL)),
    PRIMARY KEY (table_name, position, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold    = 1000
);

-- One row, which lasts as long as the server forgets nothing: a crash and the promotion of a standby empty the table,
-- because it is unlogged. Both may take the last commits, whose positions and transactions are given out again. What a
-- relay remembers of positions holds in one era only.
CREATE UNLOGGED TABLE IF NOT EXISTS outbox_log_era (
    one BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
    era UUID    NOT NULL DEFAULT gen_random_uuid()
);

-- As on outbox_events (core/002_outbox_events), whose function it is.
DROP TRIGGER IF EXISTS outbox_log_refuse ON outbox_log;
CREATE TRIGGER outbox_log_refuse BEFORE INSERT ON outbox_log FOR EACH ROW
    WHEN (NEW.event_topic::text = '' OR NEW.tenant_id::text = ''
       OR NEW.destination_topics IS NOT NULL OR NEW.metadata IS NOT NULL)
    EXECUTE FUNCTION outbox_events_refuse();
