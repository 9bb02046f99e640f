DROP TABLE IF EXISTS outbox_deliveries, outbox_pauses, outbox_readers, outbox_relays, outbox_lanes;
