-- pooler: a row if the login is a superuser or a member of one, which SET ROLE makes one. Reads the catalog only.
SELECT s.rolname FROM pg_catalog.pg_roles s WHERE s.rolsuper AND pg_catalog.pg_has_role(session_user, s.oid, 'MEMBER') LIMIT 1
