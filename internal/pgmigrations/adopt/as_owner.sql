-- adopt: the rest of the transaction is the table's owner's, until RESET ROLE. A change of its rows fires triggers, and
-- computes indexes and columns, which are the owner's to define. Only a superuser need become the owner. Where an owner
-- is held to row-level security he does not see all rows. There the caller stays, unless it would call what is his.
DO $do$
DECLARE
    adopted RECORD;
BEGIN
    SELECT pg_catalog.pg_get_userbyid(c.relowner) AS owner, c.relforcerowsecurity AS forced,
           EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal)
           OR EXISTS (SELECT FROM pg_catalog.pg_depend d   -- PostgreSQL's own functions are not in it
                       WHERE d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
                         AND d.objid IN (SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
                                         UNION ALL SELECT a.oid FROM pg_catalog.pg_attrdef a WHERE a.adrelid = c.oid)) AS calls
      INTO adopted
      FROM pg_catalog.pg_class c
     WHERE c.oid = pg_catalog.to_regclass('{{.Table}}')
       AND (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
    IF adopted.forced AND adopted.calls AND adopted.owner <> current_user THEN
        RAISE EXCEPTION 'table {{.Table}} forces row-level security on its owner %, and has triggers or functions of his', adopted.owner
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Run outbox migrate up as that role, or ALTER TABLE {{.Table}} NO FORCE ROW LEVEL SECURITY meanwhile.';
    ELSIF NOT adopted.forced THEN
        EXECUTE pg_catalog.format('SET LOCAL ROLE %I', adopted.owner);
    END IF;
END
$do$
