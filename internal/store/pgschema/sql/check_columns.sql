-- check: the columns that a table has. $1 its name, quoted. No rows: there is no such table.
SELECT attname::text
  FROM pg_attribute
 WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
