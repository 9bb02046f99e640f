-- dlq: why letters were not put back. Locks nothing.
-- Index: that of the event id, or where dead rows leave the table that of the position.
SELECT l.id,
       {{if .Status -}}
       coalesce((SELECT 'its row in ' || {{.TableName}} || ' is ' || e.{{.Status}}::text || ', not ' || {{.Dead}} ||
                        CASE WHEN e.{{template "undelivered" .}} THEN ': it is being delivered; replay the letter again when that has ended' ELSE '' END
                   FROM {{.Table}} e WHERE e.{{.ID}} = l.original_job_id{{if .Owed}} AND e.{{.Position}} = l.position{{end}} LIMIT 1),
                'its row is no longer in ' || {{.TableName}})
       {{- else -}}
       CASE WHEN l.origin IS NULL THEN 'its row was not kept'
            ELSE coalesce((SELECT CASE WHEN e.{{.ID}} <> l.original_job_id THEN 'another event stands at its position in ' || {{.TableName}}
                                       WHEN e.{{template "undelivered" .}} THEN 'its row is in ' || {{.TableName}} || ' again and is being delivered; replay the letter again when that has ended'
                                       ELSE 'its row is in ' || {{.TableName}} || ' again and was delivered' END
                             FROM {{.Table}} e WHERE e.{{.Position}} = l.position LIMIT 1),
                          'its row could not be put back into ' || {{.TableName}}) END
       {{- end}}
  FROM job_dlq l
 WHERE l.id = ANY ({{arg .IDs}}::uuid[])
