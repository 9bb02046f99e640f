-- run: leases a run that run_next.sql has found, in the same transaction. ?1 run, ?2 owner, ?3 now, ?4 when the lease
-- ends. The epoch rises with every claim: it is what tells this owner from the one before, and a second claim of the
-- same owner from its first. Index: the primary key.
UPDATE crawl_runs
   SET status = 'RUNNING', started_at = coalesce(started_at, ?3), node_attempts = node_attempts + 1,
       lease_owner = ?2, lease_epoch = lease_epoch + 1, lease_expires_at = ?4
 WHERE id = ?1
RETURNING {{template "run_columns"}}, (SELECT coalesce(max(e.seq), 0) FROM crawl_events e WHERE e.crawl_id = ?1),
          lease_epoch, coalesce(next_node, ''), node_state, steps_done, node_attempts
