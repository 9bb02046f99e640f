-- run: extends a lease. ?1 run, ?2 owner, ?3 epoch, ?4 when it ends. One that has lapsed is extended too, if nobody has
-- claimed the run since. Changes no indexed column. Index: the primary key.
UPDATE crawl_runs
   SET lease_expires_at = ?4
 WHERE id = ?1 AND {{template "run_held"}}

{{- define "run_held"}}status = 'RUNNING' AND lease_owner = ?2 AND lease_epoch = ?3{{end}}
