DROP TRIGGER IF EXISTS outbox_log_refuse ON outbox_log;
