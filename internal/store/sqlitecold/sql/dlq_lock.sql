-- dlq: letters to replay, by table and in the order of positions; the caller stops reading, because a LIMIT could part
-- the letters of an event. In a write transaction, so that nobody else replays them meanwhile. Index: job_dlq_replay,
-- or the primary key for letters chosen by id.
-- From where a page ended these are two ranges of the index, one after the other: the rest of that table, and the
-- tables after it. SQLite does not compare several expressions of an index at once, and a common ORDER BY would sort
-- the first range anew. LIMIT -1 keeps the order of each.
{{with .After -}}
SELECT * FROM (
SELECT {{template "dlq_places"}}
  FROM job_dlq l
 WHERE {{template "dlq_where" $}} AND coalesce(l.outbox_table, '') = {{arg .Table}} AND coalesce(l.position, 0) >= {{arg .Position}}
   AND (coalesce(l.position, 0), l.original_job_id) > ({{arg .Position}}, {{arg .Event}})
 ORDER BY coalesce(l.position, 0), l.original_job_id LIMIT -1)
UNION ALL
SELECT * FROM (
SELECT {{template "dlq_places"}}
  FROM job_dlq l
 WHERE {{template "dlq_where" $}} AND coalesce(l.outbox_table, '') > {{arg .Table}}
 ORDER BY coalesce(l.outbox_table, ''), coalesce(l.position, 0), l.original_job_id LIMIT -1)
{{- else -}}
SELECT {{template "dlq_places"}}
  FROM job_dlq l
 WHERE {{template "dlq_where" .}}
 ORDER BY coalesce(l.outbox_table, ''), coalesce(l.position, 0), l.original_job_id
{{- end}}

{{- define "dlq_places"}}l.id, l.source, l.original_job_id, coalesce(l.outbox_table, ''), coalesce(l.position, 0){{end}}
