-- run: leases the oldest run that waits for a worker, of the tenant of whose runs workers hold the fewest; of tenants
-- with as many that behind the one that had its turn last. The epoch rises with every claim: it is what tells this
-- owner from the one before, and a second claim of the same owner from its first. A run that is started now was
-- PENDING: RETURNING does not know. The last column is the type of the run's last event: of a run that is over the
-- claim is taken back.
-- Index: that of runs that a worker may claim, by tenant: a probe a tenant, whatever it has queued, and the few that
-- others hold are passed over; and that of runs that are held.
WITH RECURSIVE tenant (id) AS (
    SELECT min(r.tenant_id) FROM crawl_runs r INDEXED BY crawl_runs_waiting WHERE {{template "run_waits"}}
    UNION ALL
    SELECT (SELECT min(r.tenant_id) FROM crawl_runs r INDEXED BY crawl_runs_waiting WHERE {{template "run_waits"}} AND r.tenant_id > t.id)
      FROM tenant t WHERE t.id IS NOT NULL
)
UPDATE crawl_runs
   SET status = 'RUNNING', started_at = coalesce(started_at, {{arg .Now}}), node_attempts = node_attempts + 1,
       lease_owner = {{arg .Owner}}, lease_epoch = lease_epoch + 1, lease_expires_at = {{arg .Until}}
 WHERE id = (
        SELECT r.id
          FROM tenant t
         CROSS JOIN crawl_runs r ON r.id = (
                SELECT r.id
                  FROM crawl_runs r INDEXED BY crawl_runs_waiting
                 WHERE r.tenant_id = t.id AND {{template "run_waits"}}
                   AND r.crawler IN (SELECT value FROM json_each({{arg .Crawlers}}))
                   AND (r.lease_expires_at IS NULL OR r.lease_expires_at <= {{arg .Now}})
                 ORDER BY r.created_at, r.id
                 LIMIT 1)
         ORDER BY (SELECT count(*)
                     FROM crawl_runs r INDEXED BY crawl_runs_held
                    WHERE r.tenant_id = t.id AND r.lease_owner IS NOT NULL AND r.crawler <> 'external' AND r.lease_expires_at > {{arg .Now}}),
                  t.id <= {{arg .Turn}}, t.id
         LIMIT 1)
RETURNING {{template "run_columns"}}, {{template "run_last_seq"}},
          started_at = {{arg .Now}}, lease_epoch, coalesce(next_node, ''), node_state, steps_done, node_attempts,
          coalesce((SELECT e.event_type FROM crawl_events e WHERE e.crawl_id = crawl_runs.id ORDER BY e.seq DESC LIMIT 1), '')

{{- define "run_waits"}}r.status IN ('PENDING', 'RUNNING') AND r.crawler <> 'external'{{end}}
