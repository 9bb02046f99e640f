-- dlq: what became of letters of one table that were replayed: how many wait for their first attempt, how many have
-- failed and are tried again, and how many are dead again. The rest was delivered. Locks nothing.
-- Index: that of job_dlq by original_job_id, and that of the event id. The state is not in the WHERE, or an index of
-- undelivered rows would be read whole for each letter.
WITH replayed AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT 1 FROM job_dlq d
                              WHERE d.original_job_id = l.original_job_id AND d.id > l.id AND d.replayed_at IS NULL AND d.discarded_at IS NULL
                                AND coalesce(d.outbox_table, '') = coalesce(l.outbox_table, '') AND coalesce(d.destination, '') = coalesce(l.destination, '')
                                {{- if .Owed}} AND d.position = l.position{{end}}) THEN 1 ELSE 0 END AS dead,
           coalesce((SELECT max(CASE WHEN e.{{template "undelivered" .}} THEN CASE WHEN coalesce(e.{{.Attempts}}, 0) > 0 THEN 2 ELSE 1 END END)
                       FROM {{.Table}} e
                      WHERE e.{{.ID}} = l.original_job_id{{if .Owed}} AND e.{{.Position}} = l.position{{end}}), 0) AS stands
      FROM job_dlq l
     WHERE l.id {{template "among" (arg .IDs)}} AND l.replayed_at IS NOT NULL AND coalesce(l.outbox_table, '') = {{template "text" (arg .RawTable)}}
)
SELECT coalesce(sum(CASE WHEN dead = 0 AND stands = 1 THEN 1 ELSE 0 END), 0), coalesce(sum(CASE WHEN dead = 0 AND stands = 2 THEN 1 ELSE 0 END), 0), coalesce(sum(dead), 0)
  FROM replayed
