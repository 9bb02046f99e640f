-- adopt: who may do something to a table may do it to the view of its old name.
DO $do$
DECLARE
    held RECORD;
BEGIN
    FOR held IN SELECT g.privilege_type AS privilege, coalesce(quote_ident(r.rolname), 'PUBLIC') AS grantee
                  FROM pg_class c, aclexplode(c.relacl) g LEFT JOIN pg_roles r ON r.oid = g.grantee
                 WHERE c.oid = '{{.Table}}'::regclass AND g.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') LOOP
        EXECUTE format('GRANT %s ON {{.View}} TO %s', held.privilege, held.grantee);
    END LOOP;
END
$do$
