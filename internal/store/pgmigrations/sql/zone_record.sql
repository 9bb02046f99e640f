-- adopt: records the zone of times without one, where relays of any role read it: beside what they lease.
COMMENT ON TABLE outbox_lanes IS {{.Comment}}
