DROP TABLE outbox_relays;
DROP TABLE outbox_lanes;
