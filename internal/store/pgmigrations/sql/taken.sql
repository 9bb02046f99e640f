-- adopt: which names are taken. $1 schema, $2 names.
SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = to_regnamespace($1) AND c.relname = ANY ($2) ORDER BY 1
