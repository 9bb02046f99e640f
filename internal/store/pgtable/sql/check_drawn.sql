-- check: the sequence that a column draws its values from. $1 the table, quoted; $2 the column. It is the one of the
-- column's identity, or one that the column's default names. No row: there is none. Reads the catalog only.
SELECT s.seqrelid::regclass::text, s.seqincrement > 0 AND NOT s.seqcycle AND s.seqcache = 1, has_sequence_privilege(s.seqrelid, 'SELECT')
  FROM pg_attribute a
  LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
  JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass
                  AND (d.classid = 'pg_class'::regclass AND d.deptype = 'i' AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
                       OR d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid)
  JOIN pg_sequence s ON s.seqrelid = CASE WHEN d.classid = 'pg_class'::regclass THEN d.objid ELSE d.refobjid END
 WHERE a.attrelid = to_regclass($1) AND a.attname = $2
