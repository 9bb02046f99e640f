-- lanes: how many undelivered rows each lane has among the oldest, which is its first, and how many of them
-- wait for their next attempt. Also how many wait behind those, of how many keys. With min(), SQLite takes the
-- other columns from the row that has it. Locks nothing.
-- Index: the partial one on the position of undelivered rows; for the keys that wait that of the waiting rows.
WITH waiting AS MATERIALIZED (
    SELECT {{template "order_key" .}} AS key
      FROM {{.Table}} AS e
     WHERE e.{{.NextRetryAt}} IS NOT NULL AND {{template "retry_at" .}} > {{arg .Now}}
       AND +e.{{template "undelivered" .}}
)
SELECT lane, count(*) AS waiting, min(position) AS position, written, id, {{arg .Now}},
       count(*) FILTER (WHERE retrying) AS retrying, count(*) FILTER (WHERE NOT retrying AND behind) AS behind,
       count(DISTINCT key) FILTER (WHERE NOT retrying AND behind) AS keys
  FROM (SELECT {{template "lane" .}} AS lane, e.{{.Position}} AS position, e.{{or .TimeID .ID}} AS id,
               {{if .WrittenAt}}CAST(e.{{.WrittenAt}} AS TEXT){{else}}NULL{{end}} AS written,
               {{template "order_key" .}} AS key,
               e.{{.NextRetryAt}} IS NOT NULL AND {{template "retry_at" .}} > {{arg .Now}} AS retrying,
               coalesce({{template "order_key" .}} IN (SELECT w.key FROM waiting w WHERE w.key IS NOT NULL), false) AS behind
          FROM {{.Table}} AS e
         WHERE e.{{template "undelivered" .}}
         ORDER BY e.{{.Position}}
         LIMIT {{arg .Count}})
 GROUP BY lane
