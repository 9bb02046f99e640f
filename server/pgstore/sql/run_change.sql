-- run: gives a locked run another status, if there is one, and saves where its worker stands, if one does. Columns that
-- stay are not named: to set those of the progress takes privileges that a gateway does not have.
-- A run that ends is nobody's. Index: the primary key.
UPDATE crawl_runs r
   SET {{with .To}}status = {{arg .}}::text::crawl_status{{else}}status = r.status{{end}}
       {{- if eq .To "RUNNING"}}, started_at = coalesce(r.started_at, now())
       {{- else if eq .To "CANCELLED"}}, cancelled_at = now()
       {{- else if .Ends}}, completed_at = now(){{end}}
       {{- if eq .To "FAILED"}}, error_message = nullif({{arg .Error}}::text, ''){{end}}
       {{- if .Ends}}, lease_owner = NULL, lease_expires_at = NULL{{end}}
       {{- if .Saves}},
       next_node = nullif({{arg .Progress.Node}}::text, ''), node_state = {{arg .State}}::text::jsonb, steps_done = {{arg .Progress.Steps}}, node_attempts = 0
       {{- end}}
 WHERE r.id = {{arg .Run}} AND r.tenant_id = {{arg .Tenant}}
RETURNING {{template "run_columns"}}, 0::bigint
