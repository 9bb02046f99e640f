-- retention: the due rows of a range of the table's pages, in the order in which they are stored. $1 microseconds since
-- delivery, $2 from this place (a tid), $3 beyond this part (a tableoid) if at that place, $4 to before this place, $5
-- limit, $6 whether to return the rows' content. Locks nothing.
-- No index: it is a scan of exactly those pages (IS TRUE keeps the planner from an index on the status, which would
-- read all delivered rows for each part). The partitions of a partitioned table go side by side.
SELECT e.ctid::text, e.tableoid, e.{{.ID}}, {{if .Position}}e.{{.Position}}::bigint{{else}}0::bigint{{end}},
       CASE WHEN $6::boolean THEN to_jsonb(e)::text END
  FROM {{.Table}} e
 WHERE e.ctid >= $2::text::tid AND e.ctid < $4::text::tid
   AND (e.ctid > $2::text::tid OR e.tableoid > $3::oid)
   AND ({{template "removable" .}}) IS TRUE
 ORDER BY e.ctid, e.tableoid
 LIMIT $5
