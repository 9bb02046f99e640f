DROP TABLE IF EXISTS outbox_pauses;
