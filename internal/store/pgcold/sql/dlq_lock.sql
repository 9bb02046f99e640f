-- dlq: the next page of letters to replay, by table and in the order of positions. Locks them, and waits for those
-- that somebody else has locked, rather than skip them: later letters of a key must not go first. What he has replayed
-- is gone from the page when he is done. WITH TIES keeps the letters of an event together. Index: job_dlq_replay, or
-- the primary key for letters chosen by id.
SELECT l.id, l.source, l.original_job_id AS event, coalesce(l.outbox_table, '') AS table, coalesce(l.position, 0) AS position
  FROM job_dlq l
 WHERE {{template "dlq_where" .}}
       {{- with .After}} AND (coalesce(l.outbox_table, ''), coalesce(l.position, 0), l.original_job_id)
                                > ({{arg .Table}}::text, {{arg .Position}}::bigint, {{arg .Event}}::uuid){{end}}
 ORDER BY coalesce(l.outbox_table, ''), coalesce(l.position, 0), l.original_job_id
 FETCH FIRST {{arg .Limit}} ROWS WITH TIES
   FOR UPDATE
