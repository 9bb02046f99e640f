-- check: which of some columns may hold NULL. $1 the table's name, quoted; $2 columns. Of a view's columns PostgreSQL
-- does not know it.
SELECT a.attname::text
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid
 WHERE a.attrelid = to_regclass($1) AND a.attname = ANY ($2::text[]) AND NOT a.attnotnull AND c.relkind IN ('r', 'p')
