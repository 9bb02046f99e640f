-- legacy: kind and size of the table, whether id alone is unique, and the checks on status, which know nothing of
-- DEAD and FAILED. $1 table.
SELECT c.relkind::text,
       pg_size_pretty(pg_table_size(c.oid)),
       EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'id'
                WHERE i.indrelid = c.oid AND i.indisunique AND i.indpred IS NULL AND i.indkey::text = a.attnum::text),
       ARRAY(SELECT k.conname::text FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'status'
              WHERE k.conrelid = c.oid AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum] ORDER BY 1)
  FROM pg_class c
 WHERE c.oid = to_regclass($1)
