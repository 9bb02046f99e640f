-- bus: whether the role may run bus_served.sql, which would end the transaction of one that may not. Locks nothing.
SELECT coalesce(has_table_privilege(to_regclass('outbox_relays'), 'SELECT'), false)
