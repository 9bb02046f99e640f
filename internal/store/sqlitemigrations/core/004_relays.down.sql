DROP TABLE outbox_deliveries;
DROP TABLE outbox_pauses;
DROP TABLE outbox_readers;
DROP TABLE outbox_relays;
DROP TABLE outbox_lanes;
