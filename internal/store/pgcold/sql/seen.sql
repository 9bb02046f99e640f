-- deliveries, conditions: whether there is a table, and whether this role may read it. Reads the catalog only.
SELECT to_regclass({{arg .Table}}::text) IS NOT NULL,
       coalesce(has_table_privilege(to_regclass({{arg .Table}}::text), 'SELECT'), false)
