-- dlq: makes sure that the tenants of the letters that dlq_collect.sql writes have an application to point at. Index:
-- as there. (Of an INSERT from a SELECT, SQLite's ON CONFLICT needs the WHERE, or it would be taken for a join's ON.)
INSERT INTO apps (name, namespace)
SELECT DISTINCT {{template "dead_tenant" .}}, {{template "dead_tenant" .}}
  FROM {{.Table}} AS e
 WHERE {{template "dead_silent" .}}
ON CONFLICT DO NOTHING
