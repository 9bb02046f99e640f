-- legacy: what the table has now. $1 table. Takes no lock beyond the catalog's.
SELECT a.attname::text, t.typname::text, a.attnotnull, a.atttypmod
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
