DROP TABLE IF EXISTS outbox_endpoints;
