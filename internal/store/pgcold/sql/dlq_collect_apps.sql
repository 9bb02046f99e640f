-- dlq: makes sure that the tenants of the letters that dlq_collect.sql writes have an application to point at.
-- Index: as there.
INSERT INTO apps (name, namespace)
SELECT DISTINCT {{template "dead_tenant" .}}, {{template "dead_tenant" .}}
  FROM {{.Table}} e
 WHERE {{template "dead_silent" .}}
ON CONFLICT DO NOTHING
