-- run: gives a locked run another status. $1 tenant, $2 run, $3 status ('': as it is), $4 error of FAILED. With
-- Progress saves where its worker stands: $5 next node, $6 its state, $7 steps done. Without, those columns are not
-- named: setting them takes privileges that a gateway does not have.
-- A run that ends is nobody's. Index: the primary key.
UPDATE crawl_runs r
   SET status = coalesce(nullif($3::text, '')::crawl_status, r.status),
       started_at = CASE WHEN $3 = 'RUNNING' THEN coalesce(r.started_at, now()) ELSE r.started_at END,
       completed_at = CASE WHEN $3 IN ('COMPLETED', 'FAILED') THEN now() ELSE r.completed_at END,
       cancelled_at = CASE WHEN $3 = 'CANCELLED' THEN now() ELSE r.cancelled_at END,
       error_message = CASE WHEN $3 = 'FAILED' THEN nullif($4::text, '') ELSE r.error_message END,
       lease_owner = CASE WHEN {{template "run_ends"}} THEN NULL ELSE r.lease_owner END,
       lease_expires_at = CASE WHEN {{template "run_ends"}} THEN NULL ELSE r.lease_expires_at END
       {{- if .Progress}},
       next_node = nullif($5::text, ''), node_state = $6::text::jsonb, steps_done = $7, node_attempts = 0
       {{- end}}
 WHERE r.id = $2 AND r.tenant_id = $1
RETURNING {{template "run_columns"}}, 0::bigint

{{- define "run_ends"}}$3 IN ('COMPLETED', 'FAILED', 'CANCELLED'){{end}}
