DROP TABLE IF EXISTS outbox_deliveries;
