-- dlq: letters to replay, by table and in the order of positions; the caller stops reading, because a LIMIT could part
-- the letters of an event. In a write transaction, so that nobody else replays them meanwhile. Index: job_dlq_replay,
-- or the primary key for letters chosen by id.
-- From where a page ended it is asked twice, .Rest false and true: one range of the index each. SQLite does not compare
-- several expressions of an index at once, and with one of them given it sorts by it all the same if it is told to.
SELECT l.id, l.source, l.original_job_id, coalesce(l.outbox_table, ''), coalesce(l.position, 0)
  FROM job_dlq l
 WHERE {{template "dlq_where" .}}
       {{- with .After}}
       {{- if $.Rest}} AND coalesce(l.outbox_table, '') > {{arg .Table}}
       {{- else}} AND coalesce(l.outbox_table, '') = {{arg .Table}} AND coalesce(l.position, 0) >= {{arg .Position}}
         AND (coalesce(l.position, 0), l.original_job_id) > ({{arg .Position}}, {{arg .Event}}){{end}}{{end}}
 ORDER BY {{if or .Rest (not .After)}}coalesce(l.outbox_table, ''), {{end}}coalesce(l.position, 0), l.original_job_id
