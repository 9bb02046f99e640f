-- claim: the partial indexes of a table that begin with two columns, as EXPLAIN names them, with the type of the first
-- and the collation to ask with. $1 table, $2 and $3 columns. Reads the catalog only. Whether the planner takes one,
-- whose predicate may be another, is asked by EXPLAIN.
-- The type with -1: with NULL a char(10) is called character, and a cast to that cuts to one letter.
SELECT quote_ident(c.relname), format_type(a.atttypid, -1),
       coalesce((SELECT format(' COLLATE %I.%I', n.nspname, o.collname)
                   FROM pg_collation o JOIN pg_namespace n ON n.oid = o.collnamespace
                  WHERE o.oid = i.indcollation[0] AND o.oid <> a.attcollation), '')
  FROM pg_index i
  JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_am m ON m.oid = c.relam
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
  JOIN pg_attribute p ON p.attrelid = i.indrelid AND p.attnum = i.indkey[1]
 WHERE i.indrelid = to_regclass($1) AND a.attname = $2 AND p.attname = $3 AND m.amname = 'btree' AND i.indpred IS NOT NULL AND i.indisvalid
 ORDER BY c.relname
