-- run: gives a locked run another status. ?1 tenant, ?2 run, ?3 status ('': as it is), ?4 error of FAILED, ?5 now. With
-- Progress saves where its worker stands: ?6 next node, ?7 its state, ?8 steps done. A run that ends is nobody's.
-- Index: the primary key.
UPDATE crawl_runs
   SET status = coalesce(nullif(?3, ''), status),
       started_at = CASE WHEN ?3 = 'RUNNING' THEN coalesce(started_at, ?5) ELSE started_at END,
       completed_at = CASE WHEN ?3 IN ('COMPLETED', 'FAILED') THEN ?5 ELSE completed_at END,
       cancelled_at = CASE WHEN ?3 = 'CANCELLED' THEN ?5 ELSE cancelled_at END,
       error_message = CASE WHEN ?3 = 'FAILED' THEN nullif(?4, '') ELSE error_message END,
       lease_owner = CASE WHEN {{template "run_ends"}} THEN NULL ELSE lease_owner END,
       lease_expires_at = CASE WHEN {{template "run_ends"}} THEN NULL ELSE lease_expires_at END
       {{- if .Progress}},
       next_node = nullif(?6, ''), node_state = ?7, steps_done = ?8, node_attempts = 0
       {{- end}}
 WHERE id = ?2 AND tenant_id = ?1
RETURNING {{template "run_columns"}}, 0

{{- define "run_ends"}}?3 IN ('COMPLETED', 'FAILED', 'CANCELLED'){{end}}
