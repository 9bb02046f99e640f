-- migrate: which steps have left their trace, whoever applied them. $1 sets, $2 versions, $3 relations, $4 a column of
-- each, empty for any. Takes no lock beyond the catalog's.
SELECT t.step, t.version
  FROM unnest($1::text[], $2::int[], $3::text[], $4::text[]) AS t (step, version, relation, attribute)
 WHERE EXISTS (SELECT FROM pg_attribute a
                WHERE a.attrelid = to_regclass(t.relation) AND NOT a.attisdropped AND t.attribute IN ('', a.attname))
 ORDER BY t.step, t.version
