-- run: extends a lease. $1 run, $2 owner, $3 epoch, $4 time to live in microseconds. One that has lapsed is extended
-- too, if nobody has claimed the run since.
-- Waits for a change that is under way. Changes no indexed column. Index: the primary key.
UPDATE crawl_runs r
   SET lease_expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
 WHERE r.id = $1 AND {{template "run_held"}}

{{- define "run_held"}}r.status = 'RUNNING' AND r.lease_owner = $2 AND r.lease_epoch = $3{{end}}
