-- check: each column of a table with its type, the type below it if it is a domain, and whether it may hold NULL: of a
-- view's columns PostgreSQL does not know it. $1 the table's name, quoted. Reads the catalog only.
WITH RECURSIVE kind AS (
    SELECT a.attname, a.atttypid AS declared, a.atttypid AS type,
           NOT a.attnotnull AND c.relkind IN ('r', 'p') AS nullable
      FROM pg_attribute a
      JOIN pg_class c ON c.oid = a.attrelid
     WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT k.attname, k.declared, t.typbasetype, k.nullable AND NOT t.typnotnull
      FROM kind k
      JOIN pg_type t ON t.oid = k.type AND t.typtype = 'd'
)
SELECT k.attname::text, format_type(k.declared, NULL), format_type(k.type, NULL), k.nullable
  FROM kind k
  JOIN pg_type t ON t.oid = k.type AND t.typtype <> 'd'
