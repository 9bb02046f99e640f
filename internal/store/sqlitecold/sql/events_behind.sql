-- events: which of some rows wait behind another of their key that is being retried, and until when. Of several the
-- one that is tried last: with max(), SQLite takes the other columns from the row that has it. Locks nothing. Index:
-- that of the waiting rows, and that of the position.
WITH waiting AS MATERIALIZED (
    SELECT {{template "order_key" .}} AS key, e.{{.ID}} AS id, max({{template "retry_at" .}}) AS until
      FROM {{.Table}} AS e
     WHERE e.{{.NextRetryAt}} IS NOT NULL AND {{template "retry_at" .}} > {{arg .Now}}
       AND +e.{{template "undelivered" .}}
       AND {{template "ordered" .}}
     GROUP BY 1
)
SELECT e.{{.Position}}, w.id, w.until
  FROM {{.Table}} AS e JOIN waiting AS w ON w.key = {{template "order_key" .}}
 WHERE e.{{.Position}} IN (SELECT value FROM json_each({{arg .Positions}}))
   AND +e.{{template "undelivered" .}}
   AND {{template "ordered" .}}
   AND (e.{{.NextRetryAt}} IS NULL OR {{template "retry_at" .}} <= {{arg .Now}})
