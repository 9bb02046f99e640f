-- run: extends a lease. One that has lapsed is extended too, if nobody has
-- claimed the run since. Changes no indexed column. Index: the primary key.
UPDATE crawl_runs
   SET lease_expires_at = {{arg .Until}}
 WHERE id = {{arg .Run}} AND {{template "run_held" .}}

{{- define "run_held"}}status = 'RUNNING' AND lease_owner = {{arg .Owner}} AND lease_epoch = {{arg .Epoch}}{{end}}
