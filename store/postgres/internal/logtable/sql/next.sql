-- retention: has writers fill the next part of a log.
SELECT nextval('outbox_log_part')
