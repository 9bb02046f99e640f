-- adopt: tables of runs whose gateway would see nothing. Its policies go with the column that they compare (crawl/003's
-- down).
SELECT c.relname::text
  FROM pg_class c
 WHERE c.oid IN (to_regclass('crawl_runs'), to_regclass('crawl_events'), to_regclass('crawl_outbox')) AND c.relrowsecurity
   AND to_regrole('outbox_gateway') IS NOT NULL AND has_any_column_privilege('outbox_gateway', c.oid, 'INSERT')
   AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = c.relname || '_gateway')
 ORDER BY 1
