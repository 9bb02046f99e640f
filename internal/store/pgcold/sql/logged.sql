-- why: one event of a log, by its position, or by its id among the newest 1,000,000 rows: no index has ids. Locks
-- nothing. Index: that of positions.
SELECT e.{{.ID}} AS id, e.{{.Position}} AS position, e.{{.Transaction}}::text AS xid, {{template "lane" .}} AS lane, e.{{.Topic}}::text AS topic,
       {{if .Key}}e.{{.Key}}::text{{else}}NULL::text{{end}} AS key, {{template "shown_tenant" .}} AS tenant,
       {{if .Source}}e.{{.Source}}::text{{else}}NULL::text{{end}} AS source, {{template "shown_written_at" .}} AS written_at,
       e.{{.Payload}}::text AS payload
  FROM {{.Table}} e
 WHERE {{if .ByPosition}}e.{{.Position}} = {{arg .Asked}}::text::bigint
       {{- else}}e.{{.Position}} > (SELECT coalesce(max(n.{{.Position}}), 0) - 1000000 FROM {{.Table}} n) AND e.{{.ID}} = {{arg .Asked}}::text::uuid{{end}}
       {{- with .F.Tenant}} AND {{template "shown_tenant" $}} = {{arg .}}{{end}}
 LIMIT 1
