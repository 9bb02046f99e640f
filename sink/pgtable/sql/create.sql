-- The table of a destination. Its owner may add columns that are nullable or have a default, indexes, constraints and
-- triggers.
CREATE TABLE IF NOT EXISTS {{.Table}} (
  event_id       uuid        NOT NULL,
  origin         bigint      NOT NULL, -- which database and table the event comes from (a hash)
  generation     integer     NOT NULL, -- how often an operator has replayed the event
  position       bigint      GENERATED ALWAYS AS IDENTITY UNIQUE, -- rises within a key
  topic          text        NOT NULL,
  aggregate_type text,
  aggregate_id   text,                 -- the key: rows of one tenant, type and id are in order
  tenant_id      text,
  source         text,
  schema_id      text,
  schema_version integer,
  sequence       bigint,
  occurred_at    timestamptz,
  payload        jsonb       NOT NULL,
  metadata       jsonb,
  received_at    timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (event_id, origin, generation)
)
