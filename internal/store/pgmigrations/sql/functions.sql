-- adopt: the functions of a schema. $1 schema.
SELECT p.proname::text, pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = to_regnamespace($1)
