-- Additive, in no seed: what hinders a relay, for whoever asks the database and not the relay itself (outbox lanes, events and sinks).
ALTER TABLE outbox_relays ADD COLUMN health TEXT;         -- {"table": reason, "sinks": {name: reason}}; NULL: nothing
ALTER TABLE outbox_relays ADD COLUMN health_since TEXT;   -- when it began to say so
