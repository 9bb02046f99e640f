DROP TABLE IF EXISTS outbox_log_era;
