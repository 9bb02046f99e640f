-- migrate: these tables for this transaction alone, each after the views that read it, as who writes through a view
-- takes them.
DO $do$
DECLARE
    own  TEXT;
    view REGCLASS;
BEGIN
    FOREACH own IN ARRAY ARRAY[{{range $i, $table := .}}{{if $i}}, {{end}}'{{$table}}'{{end}}]::text[] LOOP
        CONTINUE WHEN to_regclass(own) IS NULL;
        FOR view IN SELECT DISTINCT c.oid::regclass FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class c ON c.oid = r.ev_class
                     WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = to_regclass(own) AND c.relkind = 'v'
                       AND pg_has_role(c.relowner, 'USAGE') ORDER BY 1 LOOP
            EXECUTE format('LOCK TABLE %s', view);
        END LOOP;
        EXECUTE format('LOCK TABLE %I', own);
    END LOOP;
END
$do$;
