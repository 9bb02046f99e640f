-- adopt: roles that have INSERT on a table, and lack what its trigger will need, with the GRANTs. $1 schema, $2 table,
-- $3 the table of runs, $4 whether the trigger locks the run and reads the log.
WITH granted AS (
    SELECT DISTINCT r.oid, r.rolname
      FROM pg_class c, aclexplode(c.relacl) g JOIN pg_roles r ON r.oid = g.grantee
     WHERE c.relnamespace = to_regnamespace($1) AND c.relname = $2 AND g.privilege_type = 'INSERT' AND NOT r.rolsuper
), relations AS (
    SELECT to_regclass(format('%I.%I', $1::text, $2::text)) AS own, to_regclass(format('%I.%I', $1::text, $3::text)) AS runs
)
SELECT g.rolname::text,
       concat_ws('; ',
           CASE WHEN NOT has_any_column_privilege(g.oid, l.runs, 'SELECT') THEN format('GRANT SELECT ON %s TO %I', l.runs, g.rolname) END,
           CASE WHEN $4 AND NOT has_any_column_privilege(g.oid, l.runs, 'UPDATE') THEN format('GRANT UPDATE (status) ON %s TO %I', l.runs, g.rolname) END,
           CASE WHEN $4 AND NOT has_any_column_privilege(g.oid, l.own, 'SELECT') THEN format('GRANT SELECT ON %s TO %I', l.own, g.rolname) END)
  FROM granted g, relations l
 WHERE l.runs IS NOT NULL
   AND NOT (has_any_column_privilege(g.oid, l.runs, 'SELECT')
            AND (NOT $4 OR has_any_column_privilege(g.oid, l.runs, 'UPDATE') AND has_any_column_privilege(g.oid, l.own, 'SELECT')))
 ORDER BY 1
