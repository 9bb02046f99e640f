-- conditions: events of the last week that are dead and have no letter, and pending letters whose event has left its
-- table and was not kept. Where row-level security hides letters there is nothing to compare. Locks nothing. Indexes:
-- idx_job_dlq_original_job_id, idx_job_dlq_pending_source.
{{if and .Status .Dead -}}
SELECT 'critical', {{.TableName}}, format('event %s of %s is dead and has no letter', e.{{.ID}}, {{.TableName}}), {{template "shown_written_at" .}}, NULL::text
  FROM {{.Table}} e
 WHERE e.{{.Status}} = {{.Dead}}
   AND {{template "written_at" .}} > now() - interval '7 days'
   AND NOT row_security_active('job_dlq')
   AND NOT EXISTS (SELECT FROM job_dlq l WHERE l.original_job_id = e.{{.ID}})
UNION ALL
{{end -}}
SELECT 'critical', {{.TableName}}, format('letter %s is of event %s, which is not in %s any more', l.id, l.original_job_id, {{.TableName}}), NULL::timestamptz,
       format('outbox dlq show %s has the payload: write it as a new event, then outbox dlq discard %s', l.id, l.id)
  FROM job_dlq l
 WHERE l.replayed_at IS NULL AND l.discarded_at IS NULL AND l.source = 'event' AND l.outbox_table = {{.TableName}} AND l.origin IS NULL
   AND NOT row_security_active('job_dlq')
   AND NOT EXISTS (SELECT FROM {{.Table}} e WHERE e.{{.ID}} = l.original_job_id)
 LIMIT 10
