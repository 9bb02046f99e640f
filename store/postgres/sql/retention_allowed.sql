-- retention: which privileges it needs on a table and this role lacks. $1 the table's name, quoted.
SELECT 'SELECT' WHERE NOT has_table_privilege($1::text, 'SELECT')
UNION ALL
SELECT 'DELETE' WHERE NOT has_table_privilege($1::text, 'DELETE')
