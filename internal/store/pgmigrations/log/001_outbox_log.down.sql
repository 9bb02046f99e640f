DROP TABLE IF EXISTS outbox_log_era;
DROP TABLE IF EXISTS outbox_log_positions;
DROP TABLE IF EXISTS outbox_log;
DROP SEQUENCE IF EXISTS outbox_log_part;
DROP SEQUENCE IF EXISTS outbox_log_position_seq;
