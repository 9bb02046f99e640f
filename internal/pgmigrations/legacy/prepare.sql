-- legacy: the columns, so that rows can be filled in batches. One transaction; touches no row, except that the index
-- reads them all and keeps writers out while it does.
--
-- Source: ADR-004 (seed 004, lines 111-121: the nine columns; lines 75-79: the three renamed ones).
-- schema_ver and retry_cnt change their name only, so they are renamed. type stays and is copied, as the seed's own
-- UPDATE does: event_topic is narrower. Nobody fills type any more, so it may be empty.
ALTER TABLE {{.Table}}
    ADD COLUMN IF NOT EXISTS event_topic        VARCHAR(150),
    ADD COLUMN IF NOT EXISTS occurred_at        TIMESTAMPTZ,
    ADD COLUMN IF NOT EXISTS aggregate_type     VARCHAR(100),
    ADD COLUMN IF NOT EXISTS source_bc          VARCHAR(50),
    ADD COLUMN IF NOT EXISTS destination_topics JSONB,
    ADD COLUMN IF NOT EXISTS metadata           JSONB,
    ADD COLUMN IF NOT EXISTS next_retry_at      TIMESTAMPTZ,
    ADD COLUMN IF NOT EXISTS error_message      TEXT,
    ADD COLUMN IF NOT EXISTS processed_at       TIMESTAMPTZ,
    -- What the relay adds; what each is for: core/002_outbox_events.
    ADD COLUMN IF NOT EXISTS position           BIGINT,
    ADD COLUMN IF NOT EXISTS error_history      JSONB,
    ADD COLUMN IF NOT EXISTS delivered_to       JSONB,
    ADD COLUMN IF NOT EXISTS generation         SMALLINT NOT NULL DEFAULT 0,
    ALTER COLUMN type DROP NOT NULL
{{- range .DropChecks}},
    DROP CONSTRAINT {{.}}
{{- end}}
{{- if .WidenStatus}},
    ALTER COLUMN status TYPE VARCHAR(10)
{{- end}};
{{if .RenameVersion}}ALTER TABLE {{.Table}} RENAME COLUMN schema_ver TO schema_version;{{end}}
{{if .RenameRetries}}ALTER TABLE {{.Table}} RENAME COLUMN retry_cnt TO retry_count;{{end}}
-- Serves the batches, oldest first, and shrinks with them.
CREATE INDEX IF NOT EXISTS {{index_name "upgrade"}} ON {{.Table}} (created_at, id) WHERE position IS NULL;
