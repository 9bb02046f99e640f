-- claim: begins an era of a log, where the server has forgotten the one before. Another relay may be faster. Index: the
-- primary key.
INSERT INTO outbox_log_era DEFAULT VALUES ON CONFLICT DO NOTHING
