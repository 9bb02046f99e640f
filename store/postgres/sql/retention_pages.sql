-- retention: how many pages a table has, or its largest partition.
SELECT coalesce(max(pg_relation_size(part)), 0) / current_setting('block_size')::bigint
  FROM (SELECT to_regclass({{arg .Table}}::text) UNION SELECT relid FROM pg_partition_tree(to_regclass({{arg .Table}}::text))) AS parts (part)
