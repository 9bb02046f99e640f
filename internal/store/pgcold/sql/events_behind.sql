-- events: which of some rows wait behind another of their key that is being retried, and until when. Of
-- several the one that is tried last. Locks nothing.
-- The keys that wait are found and hashed once, as a claim does it (claim_row.sql). Index: that of the waiting rows,
-- and that of undelivered positions.
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT ON (1) {{template "order_key" .}} AS key, e.{{.ID}} AS id, {{template "shown_time" .NextRetryAt}} AS until
      FROM {{.Table}} e
     WHERE e.{{.NextRetryAt}} > now()
       AND e.{{template "undelivered" .}}
       AND {{template "ordered" .}}
     ORDER BY 1, e.{{.NextRetryAt}} DESC
)
SELECT e.{{.Position}}::bigint, w.id, w.until
  FROM {{.Table}} e
  JOIN waiting w ON w.key = {{template "order_key" .}}
 WHERE e.{{.Position}} = ANY ({{arg .Positions}}::bigint[])
   AND e.{{template "undelivered" .}}
   AND {{template "ordered" .}}
   AND (e.{{.NextRetryAt}} IS NULL OR e.{{.NextRetryAt}} <= now())
