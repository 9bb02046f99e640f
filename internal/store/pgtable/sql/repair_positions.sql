-- check: what an operator runs, as the table's owner, to place events behind the earlier ones of their keys. It waits
-- for writers and keeps them out meanwhile.
BEGIN;
LOCK TABLE {{.Table}} IN SHARE ROW EXCLUSIVE MODE;
SELECT setval({{.SequenceName}}, greatest((SELECT max({{.Position}}) FROM {{.Table}}), (SELECT last_value FROM {{.Sequence}})));
UPDATE {{.Table}} t SET {{.Position}} = n.position
  FROM (SELECT o.at, nextval({{.SequenceName}}) AS position
          FROM (SELECT e.ctid AS at FROM {{.Table}} e
                 WHERE e.{{template "undelivered" .}}{{if .Since}} AND {{template "written_at" .}} > {{.Since}}{{end}}
                 ORDER BY e.{{.Position}}) o) n
 WHERE t.ctid = n.at;
COMMIT
