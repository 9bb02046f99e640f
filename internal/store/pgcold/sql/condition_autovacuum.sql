-- conditions: which of our tables autovacuum passes by. Locks nothing.
SELECT 'advice', name, says, NULL::timestamptz, NULL::text
  FROM (SELECT 'the server' AS name, 'autovacuum is off for the whole server' AS says WHERE NOT current_setting('autovacuum')::bool
        UNION ALL
        SELECT c.relname, format('autovacuum is off for %s', c.relname)
          FROM pg_class c
         WHERE c.oid IN (SELECT to_regclass(name) FROM unnest({{arg .Tables}}::text[]) AS name)
           AND EXISTS (SELECT FROM unnest(c.reloptions) o WHERE o IN ('autovacuum_enabled=false', 'autovacuum_enabled=off'))) AS passed
