-- retention: how many pages a table has, or its largest partition. $1 its name, quoted.
SELECT coalesce(max(pg_relation_size(part)), 0) / current_setting('block_size')::bigint
  FROM (SELECT to_regclass($1) UNION SELECT relid FROM pg_partition_tree(to_regclass($1))) AS parts (part)
