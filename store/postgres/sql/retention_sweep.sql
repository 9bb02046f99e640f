-- retention: the due rows of a range of the table's pages, in the order in which they are stored. It
-- begins at From (a tid), beyond FromPart (a tableoid) if at that place, to before To. Locks nothing.
-- No index: it is a scan of exactly those pages (IS TRUE keeps the planner from an index on the status, which would
-- read all delivered rows for each part). The partitions of a partitioned table go side by side.
SELECT e.ctid::text, e.tableoid, e.{{.ID}}, {{if .Position}}e.{{.Position}}::bigint{{else}}0::bigint{{end}},
       CASE WHEN {{arg .Content}}::boolean THEN to_jsonb(e)::text END
  FROM {{.Table}} e
 WHERE e.ctid >= {{arg .From}}::text::tid AND e.ctid < {{arg .To}}::text::tid
   AND (e.ctid > {{arg .From}}::text::tid OR e.tableoid > {{arg .FromPart}}::oid)
   AND ({{template "removable" .}}) IS TRUE
 ORDER BY e.ctid, e.tableoid
 LIMIT {{arg .Limit}}
