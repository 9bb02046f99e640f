DROP TABLE IF EXISTS outbox_lanes;
