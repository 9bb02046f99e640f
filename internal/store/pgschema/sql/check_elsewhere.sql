-- check: what to do about a table that exists, but not where the search path leads. $1 its name, not quoted. No rows:
-- it exists nowhere. Of several schemas public, or else the first.
SELECT format('it is in schema %I, and the search_path of this session (%s) does not lead there: run ALTER ROLE %I SET search_path = %I, or add search_path=%s to the URL of the database',
              n.nspname, coalesce(nullif(current_setting('search_path'), ''), 'empty'), current_user, n.nspname, n.nspname)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relname = $1::text AND c.relkind IN ('r', 'p') AND has_schema_privilege(n.oid, 'USAGE')
   AND NOT n.nspname = ANY (current_schemas(true))
 ORDER BY n.nspname <> 'public', n.nspname
 LIMIT 1
