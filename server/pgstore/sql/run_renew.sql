-- run: extends a lease. One that has lapsed is extended too, if nobody has claimed the run since.
-- Waits for a change that is under way. Changes no indexed column. Index: the primary key.
UPDATE crawl_runs r
   SET lease_expires_at = clock_timestamp() + {{arg .Microseconds}}::bigint * interval '1 microsecond'
 WHERE r.id = {{arg .Run}} AND {{template "run_held" .}}

{{- define "run_held"}}r.status = 'RUNNING' AND r.lease_owner = {{arg .Owner}} AND r.lease_epoch = {{arg .Epoch}}{{end}}
