-- run: gives a locked run another status, if there is one, and saves where its worker stands, if one does. A run that
-- ends is nobody's. Index: the primary key.
UPDATE crawl_runs
   SET {{with .To}}status = {{arg .}}{{else}}status = status{{end}}
       {{- if eq .To "RUNNING"}}, started_at = coalesce(started_at, {{arg .Now}})
       {{- else if eq .To "CANCELLED"}}, cancelled_at = {{arg .Now}}
       {{- else if .Ends}}, completed_at = {{arg .Now}}{{end}}
       {{- if eq .To "FAILED"}}, error_message = nullif({{arg .Error}}, ''){{end}}
       {{- if .Ends}}, lease_owner = NULL, lease_expires_at = NULL{{end}}
       {{- if .Saves}},
       next_node = nullif({{arg .Progress.Node}}, ''), node_state = {{arg .State}}, steps_done = {{arg .Progress.Steps}}, node_attempts = 0
       {{- end}}
 WHERE id = {{arg .Run}} AND tenant_id = {{arg .Tenant}}
RETURNING {{template "run_columns"}}, 0
