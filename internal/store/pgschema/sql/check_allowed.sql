-- check: which privileges a part needs on a table, or a sequence, and this role lacks. $1 its name, quoted; $2 those on
-- all of it; $3 the columns that it sets. Asked by privilege and not by role, so that rights of any origin count.
-- INSERT may be on some columns only, as roles.sql has it for tickets. A sequence
-- that does not exist is not needed: the column is an identity, or has one of another name.
SELECT p FROM unnest($2::text[]) p
 WHERE NOT CASE p WHEN 'USAGE'  THEN has_sequence_privilege(to_regclass($1::text), p)
                  WHEN 'INSERT' THEN has_any_column_privilege($1::text, p)
                  ELSE has_table_privilege($1::text, p) END
UNION ALL
SELECT 'UPDATE (' || string_agg(quote_ident(c), ', ') || ')' FROM unnest($3::text[]) c
 WHERE NOT has_column_privilege($1::text, c, 'UPDATE')
HAVING count(*) > 0
