-- groups: the oldest events that are tried again later, for which others of their keys wait. Locks nothing. Index: that
-- of the waiting rows.
SELECT {{template "browse_columns" .}}
  FROM {{.Table}} AS e
 WHERE e.{{.NextRetryAt}} IS NOT NULL AND e.{{template "undelivered" .}}
       {{- if .Part}} AND e.{{.Part}} = {{.PartValue}}{{end}}
 ORDER BY e.{{.Position}}
 LIMIT {{arg .Limit}}
