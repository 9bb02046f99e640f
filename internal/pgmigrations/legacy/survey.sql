-- legacy: how many rows are still to do, how many of them are ERR, and what among them cannot be upgraded as it is.
-- Reads the whole table once.
SELECT count(*),
       count(*) FILTER (WHERE status = 'ERR'),
       count(*) FILTER (WHERE status IS NULL OR status NOT IN ('NEW', 'SENT', 'ERR', 'FAILED', 'DEAD')),
       count(*) FILTER (WHERE type IS NULL OR length(type) > 150),
       count(*) FILTER (WHERE created_at IS NULL)
  FROM {{.Table}}
{{- if .Prepared}}
 WHERE position IS NULL
{{- end}}
