-- run: the oldest run that waits for a worker, of any tenant, and the type of its last event. Or one that is held for longer than anybody can have asked for, and whether it is
-- that. ?1 crawlers as a JSON array, ?2 now, ?3 the latest that somebody can have asked for. Asked once without a lock, so that a worker with nothing to do holds up no writer,
-- and again in the transaction that claims. Index: that of runs that a worker may claim, oldest first; the few that others hold are passed over.
SELECT r.id, r.tenant_id, r.status = 'PENDING',
       coalesce((SELECT e.event_type FROM crawl_events e WHERE e.crawl_id = r.id ORDER BY e.seq DESC LIMIT 1), ''),
       coalesce(r.lease_expires_at > ?3, 0)
  FROM crawl_runs r INDEXED BY crawl_runs_claimable
 WHERE r.status IN ('PENDING', 'RUNNING') AND r.crawler <> 'external'
   AND r.crawler IN (SELECT value FROM json_each(?1))
   AND (r.lease_expires_at IS NULL OR r.lease_expires_at <= ?2 OR r.lease_expires_at > ?3)
 ORDER BY r.created_at, r.id
 LIMIT 1
