-- run: the oldest run that waits for a worker, of the tenant of whose runs workers hold the fewest, and the type of
-- its last event. Or one that is held for longer than anybody can have asked for, and whether it is that. ?1 crawlers
-- as a JSON array, ?2 now, ?3 the latest that somebody can have asked for, ?4 the tenant that had its turn last: of
-- tenants with as many the one behind it is next. Asked once without a lock, so that a worker with nothing to do
-- holds up no writer, and again in the transaction that claims.
-- Index: that of runs that a worker may claim, by tenant: a probe a tenant, whatever it has queued, and the few that
-- others hold are passed over; and that of runs that are held.
WITH RECURSIVE tenant (id) AS (
    SELECT min(r.tenant_id) FROM crawl_runs r INDEXED BY crawl_runs_waiting WHERE {{template "run_waits"}}
    UNION ALL
    SELECT (SELECT min(r.tenant_id) FROM crawl_runs r INDEXED BY crawl_runs_waiting WHERE {{template "run_waits"}} AND r.tenant_id > t.id)
      FROM tenant t WHERE t.id IS NOT NULL
)
SELECT r.id, r.tenant_id, r.status = 'PENDING',
       coalesce((SELECT e.event_type FROM crawl_events e WHERE e.crawl_id = r.id ORDER BY e.seq DESC LIMIT 1), ''),
       coalesce(r.lease_expires_at > ?3, 0)
  FROM tenant t
 CROSS JOIN crawl_runs r ON r.id = (
        SELECT r.id
          FROM crawl_runs r INDEXED BY crawl_runs_waiting
         WHERE r.tenant_id = t.id AND {{template "run_waits"}}
           AND r.crawler IN (SELECT value FROM json_each(?1))
           AND (r.lease_expires_at IS NULL OR r.lease_expires_at <= ?2 OR r.lease_expires_at > ?3)
         ORDER BY r.created_at, r.id
         LIMIT 1)
 ORDER BY (SELECT count(*)
             FROM crawl_runs r INDEXED BY crawl_runs_held
            WHERE r.tenant_id = t.id AND r.lease_owner IS NOT NULL AND r.crawler <> 'external' AND r.lease_expires_at > ?2),
          t.id <= ?4, t.id
 LIMIT 1

{{- define "run_waits"}}r.status IN ('PENDING', 'RUNNING') AND r.crawler <> 'external'{{end}}
