-- migrate: the tables in which other migration tools keep what they have applied. Others than golang-migrate call
-- theirs schema_migrations too, but have no column dirty.
SELECT tool
  FROM (VALUES (1, 'golang-migrate or Encore', 'schema_migrations', 'dirty'),
               (2, 'goose', 'goose_db_version', 'is_applied'),
               (3, 'Atlas', 'atlas_schema_revisions', 'applied'),
               (3, 'Atlas', 'atlas_schema_revisions.atlas_schema_revisions', 'applied')) AS known (place, tool, relation, attribute)
 WHERE EXISTS (SELECT FROM pg_attribute a
                WHERE a.attrelid = to_regclass(known.relation) AND a.attname = known.attribute AND NOT a.attisdropped)
 GROUP BY place, tool
 ORDER BY place
