-- migrate: nobody gets the rights of who migrates. Refuses where a role with less than the caller's rights has made, in
-- a schema of the search path, a function or an operator that is called like one of PostgreSQL's. It may fit a call
-- better, and would be called in its place. A superuser keeps others from making one until the transaction ends.
DO $do$
DECLARE
    path     pg_catalog.text   := pg_catalog.current_setting('search_path');
    schemas  pg_catalog.name[] := pg_catalog.current_schemas(false);
    inorder  pg_catalog.name[] := pg_catalog.current_schemas(true);
    near     pg_catalog.oid[];
    above    pg_catalog.bool;
    stranger pg_catalog.record;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    IF array_position(inorder, 'pg_catalog') > 1 + (inorder[1] LIKE 'pg\_temp%')::int THEN
        RAISE EXCEPTION 'the search path names other schemas before pg_catalog, whose tables and functions would take the place of PostgreSQL''s'
            USING ERRCODE = 'insufficient_privilege', HINT = 'Remove pg_catalog from the search path.';
    END IF;
    SELECT rolsuper INTO above FROM pg_roles WHERE rolname = current_user;
    near := ARRAY(SELECT oid FROM pg_namespace WHERE nspname = ANY (schemas) AND nspname <> 'pg_catalog');
    IF above THEN
        LOCK TABLE pg_proc, pg_operator IN SHARE ROW EXCLUSIVE MODE;
    END IF;
    SELECT s.kind, s.what, r.rolname AS owner INTO stranger
      FROM (SELECT 'function' AS kind, p.oid::regprocedure::text AS what, p.proowner AS owner FROM pg_proc p
             WHERE p.pronamespace = ANY (near)
               AND EXISTS (SELECT FROM pg_proc b WHERE b.proname = p.proname AND b.pronamespace = 'pg_catalog'::regnamespace)
            UNION ALL
            SELECT 'operator', o.oid::regoperator::text, o.oprowner FROM pg_operator o WHERE o.oprnamespace = ANY (near)) s
      JOIN pg_roles r ON r.oid = s.owner
     WHERE NOT r.rolsuper AND (above OR NOT pg_has_role(current_user, r.oid, 'MEMBER'))
     ORDER BY 1, 2 LIMIT 1;
    PERFORM set_config('search_path', path, true);
    IF stranger IS NOT NULL THEN
        RAISE EXCEPTION 'the % % of role % is called like one of PostgreSQL''s, and might be called with the rights of %',
            stranger.kind, stranger.what, stranger.owner, current_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = pg_catalog.format('Drop it, or move it to a schema that is not in the search path (ALTER %s %s SET SCHEMA ...); or, if you trust what it does, ALTER %s %s OWNER TO %I.',
                      pg_catalog.upper(stranger.kind), stranger.what, pg_catalog.upper(stranger.kind), stranger.what, current_user);
    END IF;
END
$do$;
