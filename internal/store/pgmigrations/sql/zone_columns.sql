-- adopt: columns of tables that are times without a zone. $1 schema, $2 tables.
SELECT c.relname::text, a.attname::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE n.nspname = $1 AND c.relname = ANY ($2) AND c.relkind IN ('r', 'p') AND has_table_privilege(c.oid, 'SELECT')
   AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid = 'timestamp'::regtype
 ORDER BY c.relname, a.attnum
