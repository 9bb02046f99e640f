-- deliveries, conditions: whether there is a table, and whether it may be read. Reads the schema only.
SELECT count(*) > 0, count(*) > 0 FROM sqlite_schema WHERE name = {{arg .Table}}
