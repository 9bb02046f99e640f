-- dlq: why letters were not put back. Locks nothing. Index: that of the position.
SELECT c.id,
       {{if .Status -}}
       coalesce((SELECT 'its row in ' || {{.TableName}} || ' is ' || e.{{.Status}} || ', not ' || {{.Dead}} ||
                        CASE WHEN e.{{template "undelivered" .}} THEN ': it is being delivered; replay the letter again when that has ended' ELSE '' END
                   FROM {{.Table}} AS e WHERE {{template "dlq_same" .}}),
                'its row is no longer in ' || {{.TableName}})
       {{- else -}}
       CASE WHEN c.origin IS NULL THEN 'its row was not kept'
            ELSE coalesce((SELECT CASE WHEN NOT ({{template "dlq_same" .}}) THEN 'another event stands at its position in ' || {{.TableName}}
                                       WHEN e.{{template "undelivered" .}} THEN 'its row is in ' || {{.TableName}} || ' again and is being delivered; replay the letter again when that has ended'
                                       ELSE 'its row is in ' || {{.TableName}} || ' again and was delivered' END
                             FROM {{.Table}} AS e WHERE e.{{.Position}} = c.position),
                          'its row could not be put back into ' || {{.TableName}}) END
       {{- end}}
  FROM (SELECT l.id, l.original_job_id AS event, l.position, l.origin FROM job_dlq l WHERE l.id IN (SELECT value FROM json_each({{arg .IDs}}))) AS c
