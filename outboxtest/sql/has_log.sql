-- has_log: whether there is a table outbox_log that this role may read. Locks nothing. Index: none.
SELECT coalesce(has_table_privilege(to_regclass('outbox_log'), 'SELECT'), false)
