-- Additive, in no seed: what hinders a relay, for whoever asks the database and not the relay itself (outbox lanes, events and sinks).
ALTER TABLE outbox_relays
    ADD COLUMN IF NOT EXISTS health       JSONB,         -- {"table": reason, "sinks": {name: reason}}; NULL: nothing
    ADD COLUMN IF NOT EXISTS health_since TIMESTAMPTZ;   -- when it began to say so
