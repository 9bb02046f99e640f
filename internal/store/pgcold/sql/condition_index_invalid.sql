-- conditions: which indexes of our tables were never completed. One that is being made now is named too. Locks nothing.
SELECT 'advice', i.indexrelid::regclass::text, format('index %s of %s is not valid: its making was broken off, or goes on', i.indexrelid::regclass, i.indrelid::regclass),
       NULL::timestamptz, format('DROP INDEX CONCURRENTLY %s', i.indexrelid::regclass)
  FROM pg_index i
 WHERE NOT i.indisvalid
   AND i.indrelid IN (SELECT to_regclass(name) FROM unnest({{arg .Tables}}::text[]) AS name)
