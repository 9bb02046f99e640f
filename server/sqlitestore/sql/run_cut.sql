-- run: cuts leases that end later than anybody can have asked for, as lease_cut.sql does. Index: that of runs that are
-- held.
UPDATE crawl_runs AS r INDEXED BY crawl_runs_held
   SET lease_expires_at = {{arg .Until}}
 WHERE {{template "run_ahead" .}}

{{- define "run_ahead"}}r.lease_owner IS NOT NULL AND r.crawler <> 'external' AND r.lease_expires_at > {{arg .Farthest}}
       AND r.crawler IN (SELECT value FROM json_each({{arg .Crawlers}})){{end}}
