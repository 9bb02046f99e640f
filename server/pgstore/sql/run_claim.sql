-- run: leases the oldest run that waits for a worker, of the tenant of whose runs workers hold the fewest; of
-- tenants with as many that behind the one that had its turn last. Locks the run; one that is locked is being changed
-- or claimed and is passed over.
-- clock_timestamp, as in lease_take.sql. The epoch rises with every claim: it is what tells this owner from the one
-- before, and a second claim of the same owner from its first. The last column is the type of the run's last event:
-- of a run that is over the claim is taken back. What is held is counted, not what is RUNNING: a tenant would else
-- never get the runs back whose worker died. No ORDER BY in "next", which would lock a run of every tenant before it
-- chose: the join keeps the order of "turn", and LIMIT ends it at the first run.
-- Index: that of runs that a worker may claim, by tenant: a probe a tenant, whatever it has queued; and that of runs
-- that are held.
WITH RECURSIVE tenant (id) AS (
    (SELECT r.tenant_id FROM crawl_runs r WHERE {{template "run_waits"}} ORDER BY r.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.tenant_id FROM crawl_runs r WHERE {{template "run_waits"}} AND r.tenant_id > t.id ORDER BY r.tenant_id LIMIT 1)
      FROM tenant t WHERE t.id IS NOT NULL
), held AS (
    SELECT r.tenant_id, count(*) AS runs
      FROM crawl_runs r
     WHERE r.lease_owner IS NOT NULL AND r.crawler <> 'external' AND r.lease_expires_at > clock_timestamp()
     GROUP BY r.tenant_id
), turn AS MATERIALIZED (
    SELECT t.id
      FROM tenant t LEFT JOIN held h ON h.tenant_id = t.id
     WHERE t.id IS NOT NULL
     ORDER BY coalesce(h.runs, 0), t.id <= {{arg .Turn}}, t.id
), next AS MATERIALIZED (
    SELECT waiting.id, waiting.status
      FROM turn
     CROSS JOIN LATERAL (
            SELECT r.id, r.status
              FROM crawl_runs r
             WHERE r.tenant_id = turn.id AND {{template "run_waits"}}
               AND r.crawler = ANY ({{arg .Crawlers}}::text[])
               AND (r.lease_expires_at IS NULL OR r.lease_expires_at <= clock_timestamp())
             ORDER BY r.created_at, r.id
             LIMIT 1
               FOR NO KEY UPDATE SKIP LOCKED) waiting
     LIMIT 1
)
UPDATE crawl_runs r
   SET status = 'RUNNING', started_at = coalesce(r.started_at, now()), node_attempts = r.node_attempts + 1,
       lease_owner = {{arg .Owner}}, lease_epoch = r.lease_epoch + 1, lease_expires_at = clock_timestamp() + {{arg .Microseconds}}::bigint * interval '1 microsecond'
  FROM next
 WHERE r.id = next.id
RETURNING {{template "run_columns"}}, {{template "run_last_seq"}},
          next.status = 'PENDING', r.lease_epoch, coalesce(r.next_node, ''), r.node_state::text, r.steps_done, r.node_attempts,
          coalesce((SELECT e.event_type FROM crawl_events e WHERE e.crawl_id = r.id ORDER BY e.seq DESC LIMIT 1), '')

{{- define "run_waits"}}r.status IN ('PENDING', 'RUNNING') AND r.crawler <> 'external'{{end}}
