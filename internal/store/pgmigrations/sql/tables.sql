-- adopt: what the catalog says of tables. $1 schema, $2 names. Names of what is in the schema come without it, where it
-- is first on the search path; pg_get_indexdef alone writes it. Takes no lock beyond the catalog's.
SELECT c.relname::text, jsonb_build_object(
    'kind', c.relkind, 'owner', c.relowner::regrole, 'mine', pg_has_role(c.relowner, 'USAGE'),
    'size', pg_size_pretty(pg_table_size(c.oid)), 'options', coalesce(c.reloptions, '{}'),
    'secured', c.relrowsecurity, 'forced', c.relforcerowsecurity, 'hidden', row_security_active(c.oid),
    'inherits', EXISTS (SELECT FROM pg_inherits i WHERE c.oid IN (i.inhrelid, i.inhparent)),
    'policies', ARRAY(SELECT p.polname FROM pg_policy p WHERE p.polrelid = c.oid ORDER BY 1),
    'columns', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'base', t.typname,
                   'notNull', a.attnotnull, 'identity', a.attidentity, 'generated', a.attgenerated,
                   'default', coalesce(pg_get_expr(d.adbin, d.adrelid), ''),
                   'granted', a.attacl IS NOT NULL,
                   'labels', ARRAY(SELECT e.enumlabel FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)
               ) ORDER BY a.attnum), '[]')
          FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
               LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'indexes', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'name', x.relname, 'definition', pg_get_indexdef(i.indexrelid), 'valid', i.indisvalid,
                   'unique', i.indisunique, 'predicate', coalesce(pg_get_expr(i.indpred, i.indrelid), ''),
                   'keys', ARRAY(SELECT pg_get_indexdef(i.indexrelid, n, true) FROM generate_series(1, i.indnkeyatts) n),
                   'constraint', EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u'))
               ) ORDER BY x.relname), '[]')
          FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
         WHERE i.indrelid = c.oid),
    'constraints', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'name', k.conname, 'kind', k.contype, 'definition', pg_get_constraintdef(k.oid), 'valid', k.convalidated,
                   'expression', coalesce(pg_get_expr(k.conbin, k.conrelid), ''),
                   'target', coalesce(k.confrelid::regclass::text, ''),
                   'columns', ARRAY(SELECT a.attname FROM unnest(k.conkey) WITH ORDINALITY u (n, place)
                                      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.n ORDER BY u.place),
                   'targets', ARRAY(SELECT a.attname FROM unnest(k.confkey) WITH ORDINALITY u (n, place)
                                      JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY u.place)
               ) ORDER BY k.conname), '[]')
          FROM pg_constraint k
         WHERE k.conrelid = c.oid AND k.contype IN ('c', 'f', 'p', 'u')),
    'triggers', (
        SELECT coalesce(jsonb_object_agg(g.tgname, pg_get_triggerdef(g.oid)), '{}')
          FROM pg_trigger g
         WHERE g.tgrelid = c.oid AND NOT g.tgisinternal))
  FROM pg_class c
 WHERE c.relnamespace = to_regnamespace($1) AND c.relname = ANY ($2) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
