-- adopt: the triggers that a table has of its application's, and whose functions they call. $1 table.
SELECT t.tgname::text, pg_get_userbyid(p.proowner)::text
  FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
 WHERE t.tgrelid = to_regclass($1) AND NOT t.tgisinternal ORDER BY 1
