-- adopt: the functions of a name, with their parameters. $1 schema, $2 name.
SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = to_regnamespace($1) AND p.proname = $2 ORDER BY 1
