-- run: leases the oldest run that waits for a worker, of any tenant. $1 owner, $2 crawlers, $3 time to live in microseconds. Locks the run; one that
-- is locked is being changed or claimed and is passed over. clock_timestamp, as in lease_take.sql. The epoch rises with every claim: it is what tells this owner from the
-- one before, and a second claim of the same owner from its first. The last column is the type of the run's last event: of a run that is over the claim is taken back.
-- Index: that of runs that a worker may claim, oldest first.
WITH next AS MATERIALIZED (
    SELECT id, status
      FROM crawl_runs
     WHERE status IN ('PENDING', 'RUNNING') AND crawler <> 'external'
       AND crawler = ANY ($2::text[])
       AND (lease_expires_at IS NULL OR lease_expires_at <= clock_timestamp())
     ORDER BY created_at, id
     LIMIT 1
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE crawl_runs r
   SET status = 'RUNNING', started_at = coalesce(r.started_at, now()), node_attempts = r.node_attempts + 1,
       lease_owner = $1, lease_epoch = r.lease_epoch + 1, lease_expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
  FROM next
 WHERE r.id = next.id
RETURNING {{template "run_columns"}}, {{template "run_last_seq"}},
          next.status = 'PENDING', r.lease_epoch, coalesce(r.next_node, ''), r.node_state::text, r.steps_done, r.node_attempts,
          coalesce((SELECT e.event_type FROM crawl_events e WHERE e.crawl_id = r.id ORDER BY e.seq DESC LIMIT 1), '')
