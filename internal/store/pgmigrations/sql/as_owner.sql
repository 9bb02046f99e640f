-- adopt: the rest of the transaction is the table's owner's, until RESET ROLE. That is no wall. What is called may say
-- RESET ROLE too, and a deferred trigger runs at the commit. So a superuser adopts no table that would call what a
-- lesser role has made: functions and operators of triggers, indexes, columns and constraints, rules and domains. The
-- survey asks the same first, because it evaluates checks. Where an owner is held to row-level security he does not see
-- all rows, so there the caller stays.
DO $do$
DECLARE
    adopted RECORD;
BEGIN
    SELECT c.oid::pg_catalog.regclass AS name, r.rolname AS owner, c.relforcerowsecurity AS forced,
           EXISTS (SELECT FROM pg_catalog.pg_depend d   -- PostgreSQL's own are not in it
                     LEFT JOIN pg_catalog.pg_proc p ON p.oid = d.refobjid AND d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
                     LEFT JOIN pg_catalog.pg_operator o ON o.oid = d.refobjid AND d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass
                     JOIN pg_catalog.pg_roles m ON m.oid IN (p.proowner, o.oprowner)
                    WHERE NOT m.rolsuper
                      AND d.objid IN (SELECT t.oid FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid
                                      UNION ALL SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
                                      UNION ALL SELECT k.oid FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid
                                      UNION ALL SELECT a.oid FROM pg_catalog.pg_attrdef a WHERE a.adrelid = c.oid))
           OR NOT r.rolsuper AND EXISTS (SELECT FROM pg_catalog.pg_rewrite w WHERE w.ev_class = c.oid)
           OR EXISTS (SELECT FROM pg_catalog.pg_attribute a
                        JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
                        JOIN pg_catalog.pg_type e ON e.oid IN (t.oid, t.typelem) AND e.typtype IN ('c', 'd')
                        JOIN pg_catalog.pg_roles m ON m.oid = e.typowner
                       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT m.rolsuper) AS calls
      INTO adopted
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles r ON r.oid = c.relowner
     WHERE c.oid = pg_catalog.to_regclass('{{.Table}}')
       AND (SELECT s.rolsuper FROM pg_catalog.pg_roles s WHERE s.rolname = current_user);
    IF adopted.calls THEN
        RAISE EXCEPTION 'table % of % has triggers, rules, domains or functions of a role that is no superuser, and adopting it would call them as one',
            adopted.name, adopted.owner
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Run outbox migrate up as the table''s owner; or, if you trust what they do, make a superuser their owner.';
    ELSIF NOT adopted.forced THEN
        EXECUTE pg_catalog.format('SET LOCAL ROLE %I', adopted.owner);
    END IF;
END
$do$
