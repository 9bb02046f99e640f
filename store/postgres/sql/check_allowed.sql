-- check: which privileges a relay needs on a table and this role lacks. $1 the table's name, quoted; $2 the columns that settling sets;
-- $3 whether it removes dead rows. Asked by privilege and not by role, so that rights of any origin count.
SELECT 'SELECT' WHERE NOT has_table_privilege($1::text, 'SELECT')
UNION ALL
SELECT 'UPDATE (' || string_agg(quote_ident(c), ', ') || ')' FROM unnest($2::text[]) c
 WHERE NOT has_column_privilege($1::text, c, 'UPDATE')
HAVING count(*) > 0
UNION ALL
SELECT 'DELETE' WHERE $3::boolean AND NOT has_table_privilege($1::text, 'DELETE')
