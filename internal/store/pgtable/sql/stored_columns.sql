-- dlq: the columns of a table that an INSERT may name: all but generated ones. $1 the table's name, quoted.
SELECT attname::text
  FROM pg_attribute
 WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
 ORDER BY attnum
