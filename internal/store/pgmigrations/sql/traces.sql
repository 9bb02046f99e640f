-- migrate: which steps have left their trace, whoever applied them. $1 sets, $2 versions, $3 relations, $4 a column, a
-- storage parameter or a trigger of each, empty for any column; or, where $5 is not empty, a constraint that has lost
-- $5. Takes no lock beyond the catalog's.
SELECT t.step, t.version
  FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[]) AS t (step, version, relation, attribute, former)
 WHERE CASE WHEN t.former = ''
            THEN EXISTS (SELECT FROM pg_attribute a
                          WHERE a.attrelid = to_regclass(t.relation) AND NOT a.attisdropped AND t.attribute IN ('', a.attname))
                 OR EXISTS (SELECT FROM pg_class c, unnest(c.reloptions) AS parameter
                             WHERE c.oid = to_regclass(t.relation) AND split_part(parameter, '=', 1) = t.attribute)
                 OR EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = to_regclass(t.relation) AND g.tgname = t.attribute)
            ELSE NOT EXISTS (SELECT FROM pg_constraint k
                              WHERE k.conrelid = to_regclass(t.relation) AND k.conname = t.attribute
                                AND strpos(pg_get_constraintdef(k.oid), t.former) > 0)
       END
