-- conditions: rows that say that they are delivered, and not when, or when they are tried next. Locks nothing. Reads
-- the table once.
SELECT 'critical', {{.TableName}}, format('%s rows of %s are delivered without a time, or with a next attempt: the first is %s', count(*), {{.TableName}}, min(e.{{.ID}}::text)),
       NULL::timestamptz, NULL::text
  FROM {{.Table}} e
 WHERE {{if and .Status .DeliveredAt}}e.{{.Status}} = {{.Delivered}} AND (e.{{.DeliveredAt}} IS NULL OR e.{{.NextRetryAt}} IS NOT NULL){{else}}false{{end}}
HAVING count(*) > 0
