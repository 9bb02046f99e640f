-- run: whether a run waits for a worker, and whether one is held for longer than anybody can have asked for. Locks
-- nothing. Index: that of runs that a worker may claim; that of runs that are held.
SELECT EXISTS (SELECT 1
                 FROM crawl_runs r INDEXED BY crawl_runs_waiting
                WHERE {{template "run_waits"}}
                  AND r.crawler IN (SELECT value FROM json_each({{arg .Crawlers}}))
                  AND (r.lease_expires_at IS NULL OR r.lease_expires_at <= {{arg .Now}})),
       EXISTS (SELECT 1 FROM crawl_runs r INDEXED BY crawl_runs_held WHERE {{template "run_ahead" .}})
