-- deliveries: whether there is a table of deliveries, and whether this role may read it. Reads the catalog only.
SELECT to_regclass('outbox_deliveries') IS NOT NULL, coalesce(has_table_privilege(to_regclass('outbox_deliveries'), 'SELECT'), false)
