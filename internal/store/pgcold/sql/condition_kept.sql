-- conditions: whether a table keeps what was delivered for ever, and how many rows it has by the planner's estimate.
-- Locks nothing.
SELECT 'advice', {{.TableName}}, format('%s has about %s rows (%s) and nothing removes those that are delivered', {{.TableName}}, c.reltuples::bigint,
              pg_size_pretty(pg_total_relation_size(c.oid))), NULL::timestamptz, NULL::text
  FROM pg_class c
 WHERE c.oid = to_regclass({{.TableName}}) AND c.reltuples > {{arg .Kept}}::int AND {{if .DeleteDelivered}}false{{else}}true{{end}}
