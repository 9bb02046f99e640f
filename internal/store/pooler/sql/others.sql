-- pooler: returns one object that could make its user run code of a role that is not a superuser. That is an object
-- that such a role owns, a schema in which it may create objects, or a table on which it may create triggers. It
-- returns no row if the database has none. The last column is the statement that takes such a right away. It reads the
-- catalog only, with a search path of its own, because the owner of the database may set one that hides PostgreSQL's
-- objects.
-- Only a superuser can change the answer "none", so it stays true after this transaction.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
WITH db AS (
    SELECT oid, datdba, datname, datacl FROM pg_database WHERE datname = current_database()
), role AS (   -- pg_database_owner stands for the database's owner, 0 for PUBLIC
    SELECT r.oid, r.rolname::text AS name, CASE WHEN r.oid = to_regrole('pg_database_owner') THEN db.datdba ELSE r.oid END AS owner
      FROM pg_roles r, db
     UNION ALL SELECT 0, 'PUBLIC', 0
), lesser AS (
    SELECT role.oid, coalesce(r.rolname::text, role.name) AS name, role.owner,
           CASE role.oid WHEN 0 THEN role.name ELSE quote_ident(role.name) END AS grantee
      FROM role LEFT JOIN pg_roles r ON r.oid = role.owner
     WHERE NOT coalesce(r.rolsuper, false)
), granted AS (
    SELECT 3 AS n, 'pg_namespace'::regclass AS class, s.oid AS object, g.grantee, 'create objects in' AS may, 'CREATE ON SCHEMA' AS privilege
      FROM pg_namespace s, aclexplode(s.nspacl) g WHERE g.privilege_type = 'CREATE'
     UNION ALL
    SELECT 4, 'pg_database'::regclass, db.oid, g.grantee, 'create schemas in', 'CREATE ON DATABASE' FROM db, aclexplode(db.datacl) g WHERE g.privilege_type = 'CREATE'
     UNION ALL   -- migrate down runs the texts in outbox_adopted
    SELECT 5, 'pg_class'::regclass, c.oid, g.grantee, CASE g.privilege_type WHEN 'TRIGGER' THEN 'create triggers on' ELSE 'write statements to' END,
           CASE g.privilege_type WHEN 'TRIGGER' THEN 'TRIGGER ON' ELSE 'INSERT, UPDATE ON' END
      FROM pg_class c, aclexplode(c.relacl) g
     WHERE g.privilege_type = 'TRIGGER' OR c.relname = 'outbox_adopted' AND g.privilege_type IN ('INSERT', 'UPDATE')
), owned AS (
    SELECT CASE d.classid WHEN 'pg_class'::regclass THEN 0 ELSE 1 END AS n, d.classid::regclass AS class, d.objid AS object, d.refobjid AS owner
      FROM pg_shdepend d, db
     WHERE d.deptype = 'o' AND (d.dbid = db.oid OR d.classid = 'pg_database'::regclass AND d.objid = db.oid)
       AND d.classid NOT IN ('pg_largeobject'::regclass, 'pg_default_acl'::regclass, 'pg_user_mapping'::regclass)   -- have no code
     UNION ALL   -- of PostgreSQL's own roles, of which pg_shdepend knows nothing
    SELECT 2, 'pg_namespace'::regclass, oid, nspowner FROM pg_namespace
     UNION ALL SELECT 2, 'pg_class'::regclass, oid, relowner FROM pg_class
     UNION ALL SELECT 2, 'pg_proc'::regclass, oid, proowner FROM pg_proc
     UNION ALL SELECT 2, 'pg_type'::regclass, oid, typowner FROM pg_type
), found AS (
    SELECT o.n, o.class, o.object, l.owner, l.name, NULL AS may, NULL AS privilege, NULL AS grantee FROM owned o JOIN lesser l ON l.oid = o.owner
     UNION ALL
    SELECT g.n, g.class, g.object, l.owner, l.name, g.may, g.privilege, l.grantee FROM granted g JOIN lesser l ON l.oid = g.grantee
)
SELECT session_user::text, i.type || ' ' || i.identity, f.name, coalesce(f.may, ''),
       coalesce((SELECT m.rolname::text FROM pg_roles m
                  WHERE m.rolcanlogin AND NOT m.rolsuper AND f.owner <> 0 AND pg_has_role(m.oid, f.owner, 'MEMBER')
                  ORDER BY m.oid <> f.owner, m.rolname LIMIT 1), ''),
       format('REVOKE %s %s FROM %s', f.privilege, i.identity, f.grantee)
  FROM found f, pg_identify_object(f.class, f.object, 0) i
 WHERE i.identity IS NOT NULL AND coalesce(i.schema, '') NOT LIKE 'pg\_t%'   -- temporary objects, and TOAST
   AND (f.class <> 'pg_namespace'::regclass OR i.name NOT LIKE 'pg\_t%')
 ORDER BY f.n, i.identity
 LIMIT 1
